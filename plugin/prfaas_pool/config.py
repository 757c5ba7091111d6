"""What a pool service runs with."""

from dataclasses import dataclass
from pathlib import Path

DEFAULT_BLOCK_BYTES = 64 << 10
MIN_BLOCK_BYTES = 4096
MAX_BLOCK_BYTES = 64 << 20
MAX_BYTES = 1 << 44


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """`arena` is the file that is mapped; `socket` where clients connect; both get mode 0600.

    `num_bytes` is the size of all blocks together. Transfers may have at most `transfer_share` of
    them; prefixes all that is not in use otherwise.
    """

    arena: Path
    socket: Path
    num_bytes: int
    block_bytes: int = DEFAULT_BLOCK_BYTES
    transfer_share: float = 0.5

    @property
    def num_blocks(self) -> int:
        """How many blocks the arena has."""
        return self.num_bytes // self.block_bytes
