"""Which blocks of a prefix pool are free: one list that both categories of use draw on."""

from array import array
from collections.abc import Iterable, Mapping
from enum import IntEnum


class Category(IntEnum):
    """What a block in use holds.

    `PREFIX`: cache that any request may use again. `TRANSFER`: bytes of one transfer, of any
    length, free again as soon as it ends.
    """

    PREFIX = 1
    TRANSFER = 2


_FREE = 0


class FreeList:
    """The blocks 0 to `num_blocks` - 1; each is free or in use by one category.

    A category never has more blocks than its quota; quotas may overlap. Takes 5 bytes per block;
    taking and giving back a block is O(1).
    """

    def __init__(self, num_blocks: int, quotas: Mapping[Category, int] | None = None) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks {num_blocks}: at least 1")
        self.num_blocks = num_blocks
        self._free = array("I", range(num_blocks - 1, -1, -1))
        self._use = bytearray(num_blocks)
        self._used = dict.fromkeys(Category, 0)
        self._quotas = {
            item: min(num_blocks, (quotas or {}).get(item, num_blocks)) for item in Category
        }

    @property
    def num_free(self) -> int:
        """Blocks that nobody uses."""
        return len(self._free)

    def used(self, category: Category) -> int:
        """Return how many blocks a category has."""
        return self._used[category]

    def quota(self, category: Category) -> int:
        """Return how many blocks a category may have."""
        return self._quotas[category]

    def shortage(self, category: Category, count: int) -> int:
        """Return how many blocks must be given back before `take` can succeed; 0: none.

        Those beyond the category's own quota must come from that category.
        """
        return max(self.over_quota(category, count), count - len(self._free))

    def over_quota(self, category: Category, count: int) -> int:
        """Return by how many blocks a category would exceed its quota with `count` more."""
        return max(0, self._used[category] + count - self._quotas[category])

    def take(self, category: Category, count: int) -> tuple[int, ...] | None:
        """Take blocks; None where they are not free or the quota is used up.

        >>> FreeList(4).take(Category.PREFIX, 2)
        (0, 1)
        """
        if count < 0 or self.shortage(category, count):
            return None
        blocks = tuple(self._free.pop() for _ in range(count))
        self._mark(blocks, category)
        return blocks

    def claim(self, category: Category, blocks: Iterable[int]) -> None:
        """Take these very blocks of a list that nothing was taken from yet, as a restart does.

        Call `rebuild` once all are claimed.

        Raises:
            ValueError: one is in use already.
        """
        blocks = tuple(blocks)
        if any(self._use[block] for block in blocks) or len(set(blocks)) < len(blocks):
            raise ValueError(f"blocks {blocks}: in use already")
        self._mark(blocks, category)

    def rebuild(self) -> None:
        """Make the list of free blocks again after `claim`. O(number of blocks)."""
        free = (block for block in range(self.num_blocks - 1, -1, -1) if not self._use[block])
        self._free = array("I", free)

    def give_back(self, blocks: Iterable[int]) -> None:
        """Free blocks.

        Raises:
            ValueError: one is free already; then none is freed.
        """
        blocks = tuple(blocks)
        if not all(self._use[block] for block in blocks) or len(set(blocks)) < len(blocks):
            raise ValueError(f"blocks {blocks}: free already")
        for block in blocks:
            self._used[Category(self._use[block])] -= 1
            self._use[block] = _FREE
        self._free.extend(blocks)

    def move(self, blocks: Iterable[int], category: Category) -> bool:
        """Give blocks in use to a category; False, and no change, beyond its quota."""
        blocks = [block for block in blocks if self._use[block] != category]
        if self._used[category] + len(blocks) > self._quotas[category]:
            return False
        for block in blocks:
            self._used[Category(self._use[block])] -= 1
        self._mark(blocks, category)
        return True

    def _mark(self, blocks: Iterable[int], category: Category) -> None:
        for block in blocks:
            self._use[block] = category
            self._used[category] += 1
