"""The memory that every contender moves: the KV cache of a 1T hybrid model, in scattered pages.

Such a model has 15 full-attention layers among many linear ones; the KV of a layer lies in pages
of 64 KB. A room is the same pages of all layers, in no order.
"""

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES = 64 << 10
LAYERS = 15
PAGES = 256


def page_order(seed: int, pages: int = PAGES) -> NDArray[np.int64]:
    """Return the pages of a layer in an order of this side's own."""
    return np.random.default_rng(seed).permutation(pages)


def pages_of_room(order: NDArray[np.int64], number: int, count: int) -> NDArray[np.int64]:
    """Return the `count` pages of the room of this number; rooms that follow take others.

    >>> pages_of_room(np.arange(5), 1, 3)
    array([3, 4, 0])
    """
    return order[np.arange(number * count, (number + 1) * count) % len(order)]
