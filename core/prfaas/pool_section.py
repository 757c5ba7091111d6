"""The `[pool]` section of a node: the prefix pool of its host."""

from collections.abc import Iterator
from dataclasses import dataclass

Limits = list[tuple[str, float, float, float]]
#: Of a Unix socket's path, its end included. Source: unix(7), sun_path.
_MOST_PATH_BYTES = 107


@dataclass(frozen=True, slots=True)
class PoolSection:
    """A prefill node keeps its prefixes in the pool that is served at `socket`.

    `prefetch_tokens`: how many tokens a hit must have to be fetched; `host_ratio`: the engine's own
    host memory, through which pages go, as a multiple of its device memory. On `port` the node's
    agent is asked for prefixes that are to move between regions; 0 takes any free port.
    """

    socket: str
    prefetch_tokens: int = 64
    host_ratio: float = 1.2
    port: int = 0


def pool_limits(section: PoolSection) -> Limits:
    """Return (key, value, least, most) of every number."""
    return [
        ("pool.prefetch_tokens", section.prefetch_tokens, 1, 1 << 20),
        ("pool.host_ratio", section.host_ratio, 1.01, 64),
        ("pool.port", section.port, 0, 65535),
    ]


def pool_problems(section: PoolSection) -> Iterator[str]:
    """Yield what is wrong with the values that are no numbers, and what is allowed."""
    path = section.socket
    if not path or "\0" in path or len(path.encode()) > _MOST_PATH_BYTES:
        yield f"pool.socket = {path!r}: allowed is a path of 1 to {_MOST_PATH_BYTES} bytes"
