"""The section `[twin]` of a node's configuration."""

from dataclasses import dataclass
from enum import StrEnum


class EngineKind(StrEnum):
    """What runs behind a prefill or decode node."""

    SGLANG = "sglang"
    TWIN = "twin"


@dataclass(frozen=True, slots=True)
class TwinSection:
    """The engine twin: a profile in the place of a model's compute; see docs/twin.md.

    `profile` is a name of the catalog or a profile file. Bytes of KV cache are divided by `scale`
    and every second of compute is stretched by `dilation`. The cache is made of `layers` layers. A
    batch of prompts has up to `batch_tokens` uncached tokens, a forward pass `chunk_tokens`.
    `context_tokens` is the longest prompt with its output, `cache_tokens` what the prefix cache
    holds; a `stateful` model reuses prefixes only where a state was kept. `max_running_requests`:
    0 takes the profile's. `kv_pool_bytes` of memory hold what a decode receives (after scaling).
    `admin_port` on 127.0.0.1 takes injected faults; 0 has none there.
    """

    profile: str = "paper-1t-h20"
    scale: float = 1000.0
    dilation: float = 1.0
    layers: int = 8
    batch_tokens: int = 16384
    chunk_tokens: int = 8192
    context_tokens: int = 1 << 18
    cache_tokens: int = 1 << 22
    stateful: bool = True
    max_running_requests: int = 0
    kv_pool_bytes: int = 256 << 20
    admin_port: int = 0


def twin_limits(twin: TwinSection) -> list[tuple[str, float, float, float]]:
    """Return (key, value, least, most) of every number."""
    return [
        ("twin.scale", twin.scale, 1e-3, 1e6),
        ("twin.dilation", twin.dilation, 1e-3, 1e3),
        ("twin.layers", twin.layers, 1, 512),
        ("twin.batch_tokens", twin.batch_tokens, 0, 1 << 30),
        ("twin.chunk_tokens", twin.chunk_tokens, 64, 1 << 30),
        ("twin.context_tokens", twin.context_tokens, 64, 1 << 24),
        ("twin.cache_tokens", twin.cache_tokens, 0, 1 << 30),
        ("twin.max_running_requests", twin.max_running_requests, 0, 1 << 16),
        ("twin.kv_pool_bytes", twin.kv_pool_bytes, 1 << 16, 1 << 40),
        ("twin.admin_port", twin.admin_port, 0, 65535),
    ]
