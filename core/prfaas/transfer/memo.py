"""A bounded memory of concluded things."""

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """A dict that drops its oldest keys beyond `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[K, V] = OrderedDict()

    def put(self, key: K, value: V) -> None:
        """Remember `value`, as the newest."""
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._limit:
            self._values.popitem(last=False)

    def get(self, key: K) -> V | None:
        """Return the value, or None."""
        return self._values.get(key)

    def drop(self, key: K) -> None:
        """Forget the key, if it is there."""
        self._values.pop(key, None)
