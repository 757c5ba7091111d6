"""Pages that SGLang frees while they may still be read.

After a chunk SGLang puts its pages into the prefix cache; where the cache has the same tokens
already, it frees the request's own pages at once and goes on with the cache's. Pages that were
submitted layer by layer may still be on their way then, so that their release waits until the room
is over.

Source: sglang 0.5.23 srt/mem_cache/allocator/base.py (free groups), paged.py, swa.py.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FULL = ("free_group", "free_page_ids_group")
_WINDOW = ("swa_free_group", "swa_page_ids_group")
_TOKENS = ("free_group", "swa_free_group")


class HeldFrees:
    """What is freed from the construction to `end()`; for the scheduler's thread.

    The allocator must have no free group open. Raises: AssertionError if it has.
    """

    def __init__(self, allocator: Any) -> None:
        allocator.free_group_begin()
        self._allocator = allocator
        self._tensors: dict[str, list[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def end(self, *, keep: bool) -> None:
        """Stop collecting; what was freed is kept until `release()`, or given back at once."""
        if keep:
            for name in (*_FULL, *_WINDOW):
                owner = self._owner(name)
                if getattr(owner, name, None):
                    self._tensors[name] = getattr(owner, name)
                    setattr(owner, name, [])
        self._allocator.free_group_end()

    def release(self, *, only_window: bool = False) -> None:
        """Give pages back; `only_window`: those of sliding-window layers."""
        names = _WINDOW if only_window else (*_FULL, *_WINDOW)
        taken = {name: self._tensors.pop(name) for name in names if name in self._tensors}
        if not taken:
            return
        has_group = self._allocator.free_group is not None
        if not has_group:
            self._allocator.free_group_begin()
        for name, tensors in taken.items():
            getattr(self._owner(name), name).extend(tensors)
        if not has_group:
            self._allocator.free_group_end()

    def pages(self, *, of_window: bool) -> NDArray[np.int64]:
        """Return the numbers of the pages kept, of full-attention or of sliding-window layers."""
        page_size = self._allocator.page_size
        found = [
            np.asarray(tensor.cpu().numpy(), dtype=np.int64)
            // (page_size if name in _TOKENS else 1)
            for name in (_WINDOW if of_window else _FULL)
            for tensor in self._tensors.get(name, ())
        ]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def _owner(self, name: str) -> Any:
        """Return the allocator that keeps a list: full pages have one of their own beside SWA."""
        if name in _FULL:
            return getattr(self._allocator, "full_attn_allocator", self._allocator)
        return self._allocator
