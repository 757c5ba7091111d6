"""Runs of bytes on their way out of or into memory."""

from dataclasses import dataclass

import xxhash

from prfaas.transfer.send_room import ChunkOut
from prfaas.wire import Chunk, set_digest

MAX_IOV = 1000
"""Buffers per call; Linux takes 1024 (IOV_MAX)."""


@dataclass(frozen=True, eq=False, slots=True)
class EncodedChunk:
    """A chunk that came with an encoding: where its payload is, and where the decoded one goes."""

    frame: Chunk
    payload: memoryview
    target: list[memoryview]


class Segment:
    """Views that are sent or filled one after another; `chunk` is the chunk they belong to.

    `unsealed` is the chunk's frame as it is sent, the first view, while it lacks its digest.
    `is_unencoded`: it is to be encoded before anything of it is sent.
    `is_private`: the views are ours and no room's memory. `is_dropped`: its lane has let go of it.
    """

    __slots__ = (
        "_at",
        "_views",
        "chunk",
        "is_dropped",
        "is_private",
        "is_started",
        "is_unencoded",
        "left_bytes",
        "unsealed",
    )

    def __init__(self, views: list[memoryview], chunk: ChunkOut | None = None) -> None:
        self._views = views
        self._at = 0
        self.chunk = chunk
        self.unsealed: bytearray | None = None
        self.is_unencoded = False
        self.is_private = False
        self.is_dropped = False
        self.is_started = False
        self.left_bytes = sum(len(view) for view in views)

    @property
    def payload(self) -> list[memoryview]:
        """The views of a chunk's payload, nothing of which was sent yet."""
        return self._views[1:]

    def replace(self, frame: bytearray, payload: list[memoryview]) -> int:
        """Send this instead, the chunk encoded; return by how many bytes it is more."""
        before = self.left_bytes
        self._views = [memoryview(frame), *payload]
        self.left_bytes = sum(map(len, self._views))
        self.unsealed = None if self.unsealed is None else frame
        self.is_private = True
        return self.left_bytes - before

    def head(self, max_views: int) -> tuple[list[memoryview], int]:
        """Return the next views, and how many bytes they are."""
        views = self._views[self._at : self._at + max_views]
        if self._at + max_views >= len(self._views):
            return views, self.left_bytes
        return views, sum(map(len, views))

    def seal(self) -> None:
        """Put the digest of the payload into the frame; nothing may have been sent yet."""
        if self.unsealed is None:
            return
        digest = xxhash.xxh3_64()
        for view in self._views[1:]:
            digest.update(view)
        set_digest(self.unsealed, digest.intdigest())
        self.unsealed = None

    def advance(self, num_bytes: int) -> None:
        """Count `num_bytes` bytes as sent or filled."""
        self.is_started = self.is_started or num_bytes > 0
        self.left_bytes -= num_bytes
        if not self.left_bytes:
            self._at = len(self._views)
            return
        while num_bytes:
            view = self._views[self._at]
            if num_bytes < len(view):
                self._views[self._at] = view[num_bytes:]
                return
            num_bytes -= len(view)
            self._at += 1

    def fill(self, data: bytes) -> None:
        """Copy `data` to the next bytes."""
        done = 0
        while done < len(data):
            view = self._views[self._at]
            size = min(len(view), len(data) - done)
            view[:size] = data[done : done + size]
            self.advance(size)
            done += size

    def detach(self) -> None:
        """Copy what is left, so that the memory behind it may change."""
        if not self.is_private:
            self._views = [memoryview(bytes(view)) for view in self._views[self._at :]]
            self._at = 0
        self.chunk = None
