"""The publisher's memory: its newest batches, and the cache they lead to."""

from collections import deque
from collections.abc import Iterable, Iterator

from prfaas.cache_events.codec import Cursor
from prfaas.cache_events.events import Batch, BlockStored, CacheEvent, CacheShape, Cleared
from prfaas.cache_events.mirror import CacheMirror

#: Names in one batch: a line stays far below the codec's limit, whatever the page size.
MAX_NAMES = 4096
MAX_TOKENS = 1 << 16
#: Names and tokens in the batches that are kept for readers that come back.
KEPT_ITEMS = 1 << 20


class EventLog:
    """Numbers batches of events, keeps the newest for replay, and knows the cache they lead to.

    No lock: the owner serialises `append` with `snapshot` and `since`.
    """

    def __init__(self, session: str, shape: CacheShape, *, kept_items: int = KEPT_ITEMS) -> None:
        self.session = session
        self.seq = 0
        self.mirror = CacheMirror(shape)
        self._kept: deque[Batch] = deque()
        self._kept_items = 0
        self._limit = kept_items

    def append(self, events: Iterable[CacheEvent]) -> None:
        """Take events that happened together, as one batch or as several."""
        for part in _parts(events):
            for event in part:
                self.mirror.apply(event)
            self.seq += 1
            self._kept.append(Batch(self.session, self.seq, part))
            self._kept_items += _items(part)
        while self._kept_items > self._limit and len(self._kept) > 1:
            self._kept_items -= _items(self._kept.popleft().events)

    def since(self, cursor: Cursor) -> list[Batch] | None:
        """Return the batches after a reader's last; None if it needs a snapshot."""
        if cursor.session != self.session or cursor.seq > self.seq:
            return None
        missing = self.seq - cursor.seq
        if missing > len(self._kept):
            return None
        return [self._kept[index] for index in range(len(self._kept) - missing, len(self._kept))]

    def snapshot(self) -> list[Batch]:
        """Return batches that lead a reader from nothing to now."""
        parts = list(_parts(self.mirror.snapshot()))
        return [
            Batch(self.session, self.seq, part, snapshot=True, more=number < len(parts))
            for number, part in enumerate(parts, start=1)
        ]


def _items(events: Iterable[CacheEvent]) -> int:
    return sum(_size(event) for event in events)


def _size(event: CacheEvent) -> int:
    if isinstance(event, Cleared):
        return 1
    return len(event.hashes) + (len(event.tokens) if isinstance(event, BlockStored) else 0)


def _parts(events: Iterable[CacheEvent]) -> Iterator[tuple[CacheEvent, ...]]:
    """Yield the events in order, cut so that no part is large."""
    part: list[CacheEvent] = []
    items = 0
    for event in events:
        for piece in _pieces(event):
            if part and items + _size(piece) > MAX_TOKENS:
                yield tuple(part)
                part, items = [], 0
            part.append(piece)
            items += _size(piece)
    if part:
        yield tuple(part)


def _pieces(event: CacheEvent) -> Iterator[CacheEvent]:
    """Yield an event in pieces of at most MAX_NAMES names."""
    if isinstance(event, Cleared):
        yield event
        return
    names = event.hashes
    if not isinstance(event, BlockStored):
        for start in range(0, len(names), MAX_NAMES):
            yield type(event)(names[start : start + MAX_NAMES])
        return
    size = len(event.tokens) // len(names)
    step = max(1, min(MAX_NAMES, MAX_TOKENS // size))
    parent = event.parent
    for start in range(0, len(names), step):
        piece = names[start : start + step]
        tokens = event.tokens[start * size : (start + len(piece)) * size]
        yield BlockStored(piece, tokens, parent, event.salt)
        parent = piece[-1]
