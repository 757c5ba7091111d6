"""Encodes and decodes the payloads of one I/O thread's chunks, outside of the node's lock.

A room's memory is read once, into planes, and written once, from planes; only for that is it
claimed as a system call claims it. What Zstandard does between is on memory of our own.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from prfaas.transfer.compression import TRY
from prfaas.transfer.send_room import ChunkOut
from prfaas_transport.buffers import EncodedChunk, Segment
from prfaas_transport.codec import Codec, join, sample_of
from prfaas_transport.lane import Lane
from prfaas_transport.lane_owner import LaneOwner


class Claims(Protocol):
    """What a thread says of the memory that it uses, see `IoThread`."""

    in_call: threading.Lock
    sending: Sequence[ChunkOut]
    reading: Lane | None


class ChunkCoder:
    """Works for one thread, whose claims it sets."""

    def __init__(self, lock: threading.Lock, owner: LaneOwner, claims: Claims) -> None:
        self._lock = lock
        self._owner = owner
        self._claims = claims
        self._codec = Codec()
        self._scratch = np.empty(0, np.uint8)

    def encode(self, lane: Lane) -> None:
        """Encode what is queued on the lane and waits for it; a failure is the lane's `fault`."""
        while lane.has_unencoded and lane.fault is None:
            with self._lock:
                segment, width = self._next(lane)
                if segment is None or segment.chunk is None:
                    return
                self._claims.sending = (segment.chunk,)
                self._claims.in_call.acquire()
            try:
                self._encode(lane, segment, segment.chunk, width)
            except Exception as error:
                # A bug met on one lane must not take the others along.
                lane.fault = error

    def _next(self, lane: Lane) -> tuple[Segment | None, int]:
        """Return the next chunk to encode, and how. What is left plain is passed over."""
        while not lane.is_closed and (segment := lane.next_unencoded()) is not None:
            segment.is_unencoded = False
            assert segment.chunk is not None
            width = self._owner.encoding_width(lane.number, segment.chunk.frame)
            if width is not None:
                return segment, width
        return None, TRY

    def _encode(self, lane: Lane, segment: Segment, chunk: ChunkOut, width: int) -> None:
        cpu_s = time.thread_time()
        try:
            width = width or self._best_width(segment, chunk)
            planes = self._codec.split(segment.payload, width)
        finally:
            self._claims.in_call.release()
        parts = self._codec.encode(planes)
        frame = chunk.frame
        if parts is not None:
            frame = replace(frame, payload_bytes=sum(map(len, parts)), encoding=width)
        with self._lock:
            self._claims.sending = ()
            self._owner.encoded(lane.number, frame, time.thread_time() - cpu_s)
            if parts is not None and not segment.is_dropped:
                lane.put_encoded(segment, frame, [memoryview(part) for part in parts])

    def _best_width(self, segment: Segment, chunk: ChunkOut) -> int:
        item_bytes = chunk.frame.payload_bytes // chunk.frame.count
        return self._codec.best_width(sample_of(segment.payload), item_bytes)

    def decode(self, lane: Lane, chunk: EncodedChunk) -> None:
        """Decode a payload to where it belongs, if that still wants it and it is not damaged.

        Before it is known to be well-formed, nothing is written. A failure is the lane's `fault`.
        """
        with self._lock:
            digest = None if lane.hasher is None else lane.hasher.intdigest()
            if not self._is_wanted(lane) or not self._owner.is_intact(lane.number, digest):
                return
        try:
            self._decode(lane, chunk)
        except Exception as error:
            # Also what a peer made up; its lane is closed for it.
            lane.fault = error

    def _decode(self, lane: Lane, chunk: EncodedChunk) -> None:
        cpu_s = time.thread_time()
        frame, target = chunk.frame, chunk.target
        planes = self._codec.decode(chunk.payload, frame.plain_bytes, frame.encoding)
        is_scattered = len(target) > 1
        if is_scattered:
            join(planes, self._scratch_of(frame.plain_bytes))
        with self._lock:
            if not self._is_wanted(lane):
                return
            self._claims.reading = lane
            self._claims.in_call.acquire()
        try:
            if is_scattered:
                _scatter(self._scratch_of(frame.plain_bytes), target)
            else:
                join(planes, target[0])
        finally:
            self._claims.in_call.release()
        with self._lock:
            self._claims.reading = None
            self._owner.decoded(frame, time.thread_time() - cpu_s)

    def _is_wanted(self, lane: Lane) -> bool:
        return not lane.is_closed and self._owner.is_target_live(lane.number)

    def _scratch_of(self, num_bytes: int) -> memoryview:
        if self._scratch.size < num_bytes:
            self._scratch = np.empty(num_bytes, np.uint8)
        return self._scratch.data[:num_bytes]


def _scatter(data: memoryview, views: list[memoryview]) -> None:
    at = 0
    for view in views:
        view[:] = data[at : at + len(view)]
        at += len(view)
