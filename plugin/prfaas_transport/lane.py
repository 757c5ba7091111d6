"""One lane: a non-blocking socket with its decoder and its outgoing segments."""

import contextlib
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from prfaas.errors import ProtocolError
from prfaas.transfer.liveness import Liveness
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.signals import LaneSample
from prfaas.wire import Chunk, Decoder, Frame, Ping, Pong, Refuse, encode
from prfaas_transport import sockets, tcp_info
from prfaas_transport.buffers import MAX_IOV, EncodedChunk, Segment
from prfaas_transport.channel import Channel

if TYPE_CHECKING:
    from prfaas_transport.io_thread import IoThread

MAX_QUEUED_PONGS = 256
BURST_S = 0.01
MAX_BURST_BYTES = 1 << 20


class Lane:
    """State of one connection. System calls on it are its I/O thread's; all else is under the lock.

    `is_ready`: the connection stands and the channel's handshake is done.
    `is_blocked`: the socket took less than it was given; wait for it to become writable.
    `is_greeted`: the first frame of the peer (HELLO, WELCOME) has come.
    `target`: where the payload being read goes; None discards it.
    `encoded`: the chunk being read if its payload must be decoded; `target` is then a buffer.
    `undecoded`: that chunk when all of its payload is there; nothing is read until it is decoded.
    `has_unencoded`: the payload of a queued chunk is yet to be encoded, and sent after that.
    `burst_bytes`: what comes in three hundredths of a second.
    `fault`: what a call on the lane raised; it is closed for that.
    `taken_bytes`: what the socket took in the call that ended last; None once that is accounted.
    """

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        channel: Channel,
        thread: "IoThread",
        *,
        is_connecting: bool,
        period_s: float,
        now: float,
    ) -> None:
        self.number = number
        self.sock = sock
        self.channel = channel
        self.thread = thread
        self.fd = channel.fileno()
        self.is_connecting = is_connecting
        self.is_paced = False
        self.is_ready = False
        self.is_blocked = False
        self.is_greeted = False
        self.is_closing = False
        self.is_closed = False
        self.opened_s = now
        self.liveness = Liveness(period_s, now)
        self.decoder = Decoder()
        self.target: Segment | None = None
        self.encoded: EncodedChunk | None = None
        self.undecoded: EncodedChunk | None = None
        self.has_unencoded = False
        self.queued_bytes = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.sample: LaneSample | None = None
        self.congestion_control = sockets.congestion_control(sock)
        self.burst_bytes = 1
        self.fault: Exception | None = None
        self.hasher: Any = None
        self.taken_bytes: int | None = None
        self._low_water = 1
        self._sampled_bytes = 0
        self._offered_bytes = 0
        self._outgoing: deque[Segment] = deque()
        self._unsealed: list[Segment] = []
        self._num_pongs = 0
        self._ping = 0

    def put(self, frame: Frame) -> None:
        """Queue a frame without payload."""
        self._append(Segment([memoryview(encode(frame))]))
        self.is_closing = self.is_closing or isinstance(frame, Refuse)

    def put_chunk(
        self,
        chunk: ChunkOut,
        payload: list[memoryview],
        *,
        with_digest: bool,
        is_unencoded: bool = False,
    ) -> None:
        """Queue a chunk with the views of its payload, which may have to be encoded first."""
        frame = bytearray(encode(chunk.frame))
        segment = Segment([memoryview(frame), *payload], chunk)
        segment.unsealed = frame if with_digest else None
        segment.is_unencoded = is_unencoded
        self.has_unencoded |= is_unencoded
        self._append(segment)

    def next_unencoded(self) -> Segment | None:
        """Return the first chunk whose payload is yet to be encoded."""
        found = next((s for s in self._outgoing if s.is_unencoded), None)
        self.has_unencoded = found is not None
        return found

    def put_encoded(self, segment: Segment, frame: Chunk, payload: list[memoryview]) -> None:
        """Send this in the place of the chunk's own frame and payload."""
        self.queued_bytes += segment.replace(bytearray(encode(frame)), payload)

    @property
    def wants_send(self) -> bool:
        """Say whether a `send` may move something."""
        return self.is_ready and not self.is_blocked and self.has_output

    @property
    def has_output(self) -> bool:
        """Say whether bytes wait, here or in the channel."""
        return self.queued_bytes > 0 or self.channel.wants_write()

    def offer(self) -> tuple[list[memoryview], list[ChunkOut]]:
        """Return what to send in one call, and the chunks whose memory that reads."""
        views: list[memoryview] = []
        chunks: list[ChunkOut] = []
        self._offered_bytes = 0
        self._unsealed = []
        for segment in self._outgoing:
            if segment.is_unencoded:
                break
            head, num_bytes = segment.head(MAX_IOV - len(views))
            views += head
            self._offered_bytes += num_bytes
            if segment.chunk is not None and not segment.is_private:
                chunks.append(segment.chunk)
            if segment.unsealed is not None:
                self._unsealed.append(segment)
            if len(views) >= MAX_IOV:
                break
        self.taken_bytes = None
        return views, chunks

    def seal(self) -> None:
        """Put the digests into the chunks of the offer. Not under the lock: it reads them all."""
        for segment in self._unsealed:
            segment.seal()

    def hash(self, views: list[memoryview], num_bytes: int) -> None:
        """Follow the payload being received, if its digest is wanted. Not under the lock."""
        if self.hasher is None:
            return
        for view in views:
            if num_bytes <= 0:
                return
            self.hasher.update(view[:num_bytes])
            num_bytes -= len(view)

    def account(self, now: float) -> int:
        """Count what the socket took of the offer, once; return it."""
        num_bytes, self.taken_bytes = self.taken_bytes, None
        if num_bytes is None:
            return 0
        self.is_blocked = num_bytes < self._offered_bytes or self.channel.wants_write()
        if num_bytes:
            self.liveness.sent(now)
            self.bytes_sent += num_bytes
            self._advance(num_bytes)
        return num_bytes

    def detach_ended(self) -> None:
        """Stop reading source memory for rooms that have ended.

        Chunks of which no byte went out are dropped; what is left of a chunk under way is copied,
        because the receiver counts its bytes and may yet take it for good.
        """
        if not any(s.chunk is not None and not s.chunk.leg.live for s in self._outgoing):
            return
        kept = deque[Segment]()
        for segment in self._outgoing:
            if segment.chunk is not None and not segment.chunk.leg.live:
                if not segment.is_started:
                    segment.is_dropped = True
                    self.queued_bytes -= segment.left_bytes
                    continue
                segment.detach()
            kept.append(segment)
        self._outgoing = kept

    def ping(self, now: float) -> None:
        """Queue a PING."""
        self._ping += 1
        self.liveness.pinged(now)
        self.put(Ping(self._ping))

    def on_ping(self, frame: Ping) -> None:
        """Queue the answer. Raises: ProtocolError if earlier answers were not read."""
        if not self._outgoing:
            self._num_pongs = 0
        self._num_pongs += 1
        if self._num_pongs > MAX_QUEUED_PONGS:
            raise ProtocolError("the peer does not read the answers to its PINGs")
        self.put(Pong(frame.nonce))

    def on_pong(self, frame: Pong, now: float) -> None:
        """Note the round trip."""
        if frame.nonce == self._ping:
            self.liveness.ponged(now)

    @property
    def rtt_s(self) -> float:
        """TCP's round trip when it was last asked, 0 before that."""
        return self.sample.rtt_s if self.sample is not None else 0.0

    def is_stalled(self, now: float) -> bool:
        """Say whether the peer should have answered by now, and has not."""
        return self.is_greeted and self.liveness.is_stalled(now, self.rtt_s)

    def is_dead(self, now: float, *, within_s: float) -> bool:
        """Say whether the peer is gone or stuck, or its host will have been silent for too long
        `within_s` from now."""
        if not self.liveness.is_silent(now, within_s=within_s):
            return False
        if self.liveness.is_stuck(now):
            return True
        try:
            return tcp_info.host_silent_s(self.sock) + within_s >= self.liveness.period_s
        except OSError:
            return True

    def observe(self, sample: LaneSample) -> bool:
        """Take a sample; return whether bytes are under way or wait to be."""
        last, self.sample = self.sample, sample
        came_bytes, self._sampled_bytes = (
            self.bytes_received - self._sampled_bytes,
            self.bytes_received,
        )
        elapsed_s = sample.at_s - (last.at_s if last is not None else self.opened_s)
        rate = came_bytes / elapsed_s if elapsed_s > 0 else 0.0
        self.burst_bytes = max(1, min(int(rate * BURST_S), MAX_BURST_BYTES))
        self.wait_for_burst()
        is_busy = last is None or last.busy_s != sample.busy_s
        return is_busy or self.is_blocked or sample.unsent_bytes > 0 or self._low_water > 1

    def wait_for_burst(self) -> None:
        """Have the socket be readable once a burst or the rest of a payload is there.

        A burst is what came in a hundredth of a second of late. Waking for every packet costs
        more than copying it, and nobody can use a part of a payload.
        """
        wanted = max(1, min(self.burst_bytes, self.decoder.payload_left))
        if wanted != self._low_water:
            with contextlib.suppress(OSError):  # a connection that is gone shows when it is read
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._low_water = wanted

    def open(self, now: float) -> None:
        """Go on from connecting over the channel's handshake to ready; may take several calls.

        Raises: OSError, and what the channel's handshake does.
        """
        if self.is_connecting:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self.is_connecting = False
        self.is_ready = self.channel.handshake(now)
        if self.is_ready:
            self.is_paced = sockets.pace(self.sock)

    def use(self, congestion_control: str) -> None:
        """Change the congestion control from now on; empty leaves it. Raises: OSError."""
        if congestion_control and congestion_control != self.congestion_control:
            sockets.set_congestion_control(self.sock, congestion_control)
            self.congestion_control = congestion_control

    def describe(self) -> dict[str, Any]:
        """Return JSON-able counters; those of the kernel are of its last sample."""
        kernel = {} if self.sample is None else self.sample.to_json()
        return {
            "lane": self.number,
            "bytes_sent_total": self.bytes_sent,
            "bytes_received_total": self.bytes_received,
            "queued_bytes": self.queued_bytes,
            "rtt_s": self.liveness.rtt_s,
            "congestion_control": self.congestion_control,
            "is_paced": self.is_paced,
            "tcp": {name: value for name, value in kernel.items() if name not in ("lane", "at_s")},
        }

    def _append(self, segment: Segment) -> None:
        self._outgoing.append(segment)
        self.queued_bytes += segment.left_bytes

    def _advance(self, num_bytes: int) -> None:
        self.queued_bytes -= num_bytes
        while num_bytes:
            segment = self._outgoing[0]
            taken = min(num_bytes, segment.left_bytes)
            segment.advance(taken)
            num_bytes -= taken
            if not segment.left_bytes:
                self._outgoing.popleft()
