"""The transport node of a decode worker."""

import secrets
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from prfaas.errors import TransferError
from prfaas.transfer.events import Address, PeerLost, ReceiveEvent
from prfaas.transfer.layout import Items, Layout
from prfaas.transfer.reasons import Reason
from prfaas.transfer.receiver import ReceiveLimits
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.signals import LaneSample
from prfaas.wire import Chunk, Frame
from prfaas.wire.frames import Priority
from prfaas_transport import sockets
from prfaas_transport.config import TransportConfig
from prfaas_transport.lane_count import FIRST_LANES, GrowingReceiver, LaneCount, window_bytes
from prfaas_transport.loop import LaneLoop
from prfaas_transport.memory import TransferMemory
from prfaas_transport.security import receiver_guard

Target = tuple[int, tuple[object, ...]]


class ReceiveNode:
    """Dials senders, opens rooms at them, and receives the granted items into memory.

    All methods may be called from any thread and from `on_event`; none waits for the network, but
    a host name (not a numeric address) is resolved in the caller's thread. `on_event` is called on
    the I/O thread. `node_id` names this process: two live receivers with the same one push each
    other out at a sender. `source_host` is the local address to dial from, unless
    `config.source_hosts` names several. Raises: ConfigError if the machine cannot do as configured.
    """

    def __init__(
        self,
        *,
        layout: Layout,
        memory: TransferMemory,
        node_id: str,
        source_host: str | None,
        config: TransportConfig,
        on_event: Callable[[ReceiveEvent], None],
    ) -> None:
        sockets.check(config)
        limits = ReceiveLimits(
            lanes=config.lanes or FIRST_LANES, room_timeout_s=config.room_timeout_s
        )
        session = secrets.randbits(64)
        self._machine = GrowingReceiver(
            layout,
            node_id=node_id,
            session=session,
            limits=limits,
            features=config.features,
            guard=receiver_guard(config.secret, layout),
        )
        self._owner = _Owner(self._machine, memory, source_host, config, on_event)
        self._loop = LaneLoop(self._owner, config, name=f"prfaas-receive-{node_id}")
        self._owner.loop = self._loop
        self._loop.start()

    def connect(self, address: Address) -> None:
        """Dial lanes to the address, unless they are up or being dialled.

        PeerUp or PeerLost follows. Raises: TransferError if the host does not resolve or there are
            too many peers.
        """
        address = (address[0], address[1])
        target = _resolve(address)
        with self._loop.call():
            self._owner.targets[address] = target
            self._machine.connect(address, monotonic())

    def open_room(
        self,
        room: int,
        *,
        address: Address,
        grants: Mapping[str, Items],
        prefix_tokens: int = 0,
        priority: Priority = Priority.FOREGROUND,
    ) -> None:
        """Grant the sender at `address` these destination items, per group, in this order.

        Background rooms get what foreground rooms leave of the path. Waits for nothing; connects if
        need be. RoomReceived or RoomFailed follows.
        Raises: TransferError if the room is open, an item is out of range, the host does not
            resolve, or there are too many rooms or peers.
        """
        address = (address[0], address[1])
        target = _resolve(address)
        with self._loop.call():
            self._owner.targets[address] = target
            self._machine.open_room(
                room,
                address=address,
                grants=grants,
                prefix_tokens=prefix_tokens,
                priority=priority,
                now=monotonic(),
            )

    def abort(self, room: int, reason: str, detail: str = "") -> None:
        """Fail the room here and at the sender; unknown and concluded rooms are ignored.

        On return no write to the room's memory is in progress, and none will start.
        """
        with self._loop.call(may_be_closed=True):
            self._machine.advance(monotonic())
            self._machine.abort(room, reason, detail)

    def forget(self, room: int) -> None:
        """Drop all memory of a room; one that is still open is aborted first."""
        self.abort(room, Reason.ABORTED, "forgotten")

    def disconnect(self, address: Address) -> None:
        """Close the lanes to the address; its rooms fail, then PeerLost follows."""
        with self._loop.call(may_be_closed=True):
            self._machine.disconnect((address[0], address[1]))

    def stats(self) -> dict[str, Any]:
        """Return JSON-able counters; names end in `_total` where they only grow."""
        with self._loop.lock:  # changes nothing: the I/O threads need not wake
            return {**self._machine.describe(), "lanes": self._loop.describe_lanes()}

    def close(self) -> None:
        """Close all lanes and stop; senders see their lanes end. No event comes after this."""
        self._loop.close()


class _Owner:
    """Joins the loop to the machine and the memory, and dials."""

    loop: LaneLoop

    def __init__(
        self,
        machine: GrowingReceiver,
        memory: TransferMemory,
        source_host: str | None,
        config: TransportConfig,
        on_event: Callable[[ReceiveEvent], None],
    ) -> None:
        self.targets: dict[Address, Target] = {}
        self._machine = machine
        self._memory = memory
        self._source_hosts = config.source_hosts or (source_host,)
        self._config = config
        self._counts: dict[Address, LaneCount] = {}
        self._window_bytes = window_bytes()
        self.closed = machine.lane_closed
        self.next_timer = machine.next_timer
        self.take_dead_lanes = machine.take_dead_lanes
        self.checked = machine.dial_around
        self.outdated = machine.renew
        self.is_target_live = machine.is_target_live
        self.is_intact = machine.is_intact
        self.decoded = machine.decoded
        self.wants_digest = machine.wants_digest
        self.deliver = on_event

    def accepted(self, lane: int) -> None:
        raise AssertionError(f"a receiver does not listen (lane {lane})")

    def receive(self, lane: int, frame: Frame, now: float) -> None:
        self._machine.advance(now)
        self._machine.receive(lane, frame)

    def payload_done(self, lane: int, digest: int | None) -> None:
        self._machine.advance(monotonic())
        self._machine.payload_done(lane, digest)

    def next_frame(self, lane: int) -> Frame | None:
        return self._machine.next_frame(lane)

    def sampled(self, sample: LaneSample, bytes_received: int) -> None:
        address = self._machine.address_of(sample.lane)
        if self._config.lanes or address is None:
            return
        count = self._counts.setdefault(address, LaneCount(self._window_bytes))
        self._machine.grow(address, count.observe(sample, bytes_received), sample.at_s)

    def congestion_control(self, lane: int) -> str:  # noqa: ARG002 - LaneOwner
        return ""  # what a receiver sends is next to nothing

    def wants_encoding(self, lane: int, chunk: ChunkOut) -> bool:  # noqa: ARG002 - LaneOwner
        raise AssertionError(f"a receiver sends no chunks ({chunk})")

    def encoding_width(self, lane: int, chunk: Chunk) -> int | None:  # noqa: ARG002 - LaneOwner
        raise AssertionError(f"a receiver sends no chunks ({chunk})")

    def encoded(self, lane: int, chunk: Chunk, cpu_s: float) -> None:  # noqa: ARG002 - LaneOwner
        raise AssertionError(f"a receiver sends no chunks ({chunk})")

    def payload(self, chunk: ChunkOut) -> list[memoryview]:
        raise AssertionError(f"a receiver sends no chunks ({chunk})")

    def target(self, lane: int) -> list[memoryview] | None:
        found = self._machine.payload_target(lane)
        if found is None:
            return None
        chunk, items = found
        return self._memory.destination(chunk.group, chunk.entry, items)

    def on_timer(self, now: float) -> None:
        for address, number in self._machine.take_dials(now):
            if self._machine.is_known(address):  # an earlier dial's failure may have ended it
                self._dial(address, number, now)
        self._machine.on_timer(now)

    def take_events(self) -> list[ReceiveEvent]:
        events = self._machine.take_events()
        for event in events:
            if isinstance(event, PeerLost) and event.address is not None:
                self._drop_target(event.address)
        return events

    def _drop_target(self, address: Address) -> None:
        if not self._machine.is_known(address):
            self.targets.pop(address, None)
            self._counts.pop(address, None)

    def _dial(self, address: Address, number: int, now: float) -> None:
        lane = self.loop.new_lane_id()
        self._machine.lane_dialing(lane, address, number)
        source_host = self._source_hosts[number % len(self._source_hosts)]
        try:
            sock = sockets.dial(self.targets[address], source_host=source_host, config=self._config)
            self.loop.add_dialled(lane, sock, now)
        except OSError as error:
            self._machine.lane_closed(lane, str(error), now)


def _resolve(address: Address) -> Target:
    try:
        return sockets.resolve(*address)
    except OSError as error:
        raise TransferError(Reason.CONNECT_FAILED, "{}:{}: {}".format(*address, error)) from error
