"""What both machines keep alike: events and dead lanes for the shell, a timer, bounded queues."""

from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, TypeVar

from prfaas.errors import ProtocolError
from prfaas.transfer.reasons import Reason
from prfaas.wire import Abort, Frame

EventT = TypeVar("EventT")
LaneId = int
RoomKey = tuple[int, int]  # room, attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferLimits:
    """Bounds of either machine."""

    room_timeout_s: float = 300.0
    max_rooms: int = 4096
    max_peers: int = 256
    max_control_frames: int = 1 << 14


class Lane(Protocol):
    """A lane; `control` goes out on this one only."""

    control: deque[Frame]


class Peer(Protocol):
    """A peer; `control` goes out on whichever of its lanes can be written to."""

    control: deque[Frame]
    unanswered_aborts: dict[RoomKey, Abort]

    @property
    def lanes(self) -> Collection[LaneId]:
        """The ids of its lanes."""


class Machine(Generic[EventT]):
    """The part of a machine that knows nothing of rooms."""

    limits: TransferLimits

    def __init__(self) -> None:
        self._events: list[EventT] = []
        self._dead_lanes: list[tuple[LaneId, str]] = []
        self._next_timer: float | None = None
        self._now = 0.0

    def advance(self, now: float) -> None:
        """Say what time it is; what is measured is as exact as this is often."""
        self._now = max(self._now, now)

    def take_events(self) -> list[EventT]:
        """Return and clear what happened."""
        events, self._events = self._events, []
        return events

    def take_dead_lanes(self) -> list[tuple[LaneId, str]]:
        """Return and clear the lanes that the shell must close, each with why."""
        lanes, self._dead_lanes = self._dead_lanes, []
        return lanes

    def next_timer(self) -> float | None:
        """Return when `on_timer` (on a receiver also `take_dials`) has something to do, or None."""
        return self._next_timer

    def _wake_at(self, at_s: float) -> None:
        self._next_timer = at_s if self._next_timer is None else min(self._next_timer, at_s)

    def _tell(self, peer: Peer, frame: Frame) -> None:
        """Queue a frame for any lane; a peer that reads none of them is given up."""
        if len(peer.control) < self.limits.max_control_frames:
            peer.control.append(frame)
        else:
            self._dead_lanes += [(lane, Reason.QUEUE_FULL) for lane in peer.lanes]

    def _tell_abort(self, peer: Peer, abort: Abort) -> None:
        """Tell it, and again when a lane dies, until the peer answers ABORTED."""
        peer.unanswered_aborts[abort.room, abort.attempt] = abort
        if len(peer.unanswered_aborts) > self.limits.max_rooms:
            del peer.unanswered_aborts[next(iter(peer.unanswered_aborts))]
        self._tell(peer, abort)

    def _reply(self, lane: Lane, frame: Frame) -> None:
        if len(lane.control) >= self.limits.max_control_frames:
            raise ProtocolError("the peer does not read the answers to its frames")
        lane.control.append(frame)


def describe_totals(counters: Any) -> dict[str, Any]:
    """Return a dataclass of counters as JSON-able values, each named `<field>_total`."""
    values = {field.name: getattr(counters, field.name) for field in fields(counters)}
    return {
        f"{name}_total": dict(value) if isinstance(value, Counter) else value
        for name, value in values.items()
    }
