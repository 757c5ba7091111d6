"""One lane: a non-blocking socket with its decoder and its outgoing segments."""

import socket
from collections import deque

from prfaas.errors import ProtocolError
from prfaas.transfer.liveness import Liveness
from prfaas.transfer.send_room import ChunkOut
from prfaas.wire import Decoder, Frame, Ping, Pong, Refuse, encode
from prfaas_transport.buffers import MAX_IOV, Segment
from prfaas_transport.channel import Channel

MAX_QUEUED_PONGS = 256


class Lane:
    """State of one connection; only touched under the node's lock.

    `is_blocked`: the socket took less than it was given; wait for it to become writable.
    `is_ready`: the connection stands and the channel's handshake is done.
    `is_greeted`: the first frame of the peer (HELLO, WELCOME) has come.
    `target`: where the payload being read goes; None discards it.
    """

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        channel: Channel,
        *,
        is_connecting: bool,
        period_s: float,
        now: float,
    ) -> None:
        self.number = number
        self.sock = sock
        self.channel = channel
        self.fd = sock.fileno()
        self.is_connecting = is_connecting
        self.is_ready = False
        self.is_blocked = is_connecting
        self.is_greeted = False
        self.is_closing = False
        self.is_closed = False
        self.opened_s = now
        self.liveness = Liveness(period_s, now)
        self.decoder = Decoder()
        self.target: Segment | None = None
        self.queued_bytes = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.rtt_s: float | None = None
        self._outgoing: deque[Segment] = deque()
        self._num_pongs = 0
        self._ping_s: tuple[int, float] = (0, 0.0)

    def put(self, frame: Frame) -> None:
        """Queue a frame without payload."""
        self._append(Segment([memoryview(encode(frame))]))
        self.is_closing = self.is_closing or isinstance(frame, Refuse)

    def put_chunk(self, chunk: ChunkOut, payload: list[memoryview]) -> None:
        """Queue a chunk with the views of its payload."""
        self._append(Segment([memoryview(encode(chunk.frame)), *payload], chunk))

    def send(self, now: float) -> int:
        """Send what is queued, in one call; return the bytes the socket took. Raises: OSError."""
        views: list[memoryview] = []
        for segment in self._outgoing:
            views += segment.head(MAX_IOV - len(views))
            if len(views) >= MAX_IOV:
                break
        try:
            num_bytes = self.channel.send(views)
        except BlockingIOError:
            self.is_blocked = True
            return 0
        self.is_blocked = self.channel.wants_write() or num_bytes < sum(map(len, views))
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
                    self.queued_bytes -= segment.left_bytes
                    continue
                segment.detach()
            kept.append(segment)
        self._outgoing = kept

    def ping(self, now: float) -> None:
        """Queue a PING."""
        self._ping_s = (self._ping_s[0] + 1, now)
        self.liveness.sent(now)
        self.put(Ping(self._ping_s[0]))

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
        if frame.nonce == self._ping_s[0]:
            self.rtt_s = now - self._ping_s[1]

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
