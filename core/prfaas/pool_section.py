"""The `[pool]` section of a node: the prefix pool of its host."""

from dataclasses import dataclass

Limits = list[tuple[str, float, float, float]]


@dataclass(frozen=True, slots=True)
class PoolSection:
    """A prefill node keeps its prefixes in the pool that is served at `socket`.

    `prefetch_tokens`: how many tokens a hit must have to be fetched; `host_ratio`: the engine's own
    host memory, through which pages go, as a multiple of its device memory.
    """

    socket: str
    prefetch_tokens: int = 64
    host_ratio: float = 1.2


def pool_limits(section: PoolSection) -> Limits:
    """Return (key, value, least, most) of every number."""
    return [
        ("pool.prefetch_tokens", section.prefetch_tokens, 1, 1 << 20),
        ("pool.host_ratio", section.host_ratio, 1.01, 64),
    ]
