"""How long rooms took and how large they were, by how they ended and who waited for them."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from prfaas.transfer.histogram import SIZE_BYTES, WAIT_S, Histogram
from prfaas.wire import Priority

MAX_RECENT = 32
"""So many rooms that ended are told one by one."""

_Labels = tuple[str, str]  # outcome, priority


@dataclass(frozen=True, kw_only=True, slots=True)
class RoomEnd:
    """A room that has ended; `reason` is empty if all items arrived. Times are of one clock.

    `first_byte_s` is when its first chunk was given to a lane (sender) or began to arrive
    (receiver), None if none did. `granted_bytes` are of all items granted to it.
    """

    room: int
    reason: str
    is_foreground: bool
    opened_s: float
    first_byte_s: float | None
    ended_s: float
    granted_bytes: int


@dataclass(slots=True)
class RoomMeasures:
    """Histograms of all rooms that have ended. Their labels are few, whatever peers say.

    The last rooms are kept one by one, for who traces a request.
    """

    _room_s: dict[_Labels, Histogram] = field(default_factory=dict)
    _first_byte_s: dict[_Labels, Histogram] = field(default_factory=dict)
    _room_bytes: dict[_Labels, Histogram] = field(default_factory=dict)
    _recent: deque[RoomEnd] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))

    def note(self, end: RoomEnd) -> None:
        """Count a room."""
        self._recent.append(end)
        priority = Priority.FOREGROUND if end.is_foreground else Priority.BACKGROUND
        labels = ("failed" if end.reason else "done", priority.name.lower())
        _of(self._room_s, labels, WAIT_S).observe(max(0.0, end.ended_s - end.opened_s))
        _of(self._room_bytes, labels, SIZE_BYTES).observe(end.granted_bytes)
        if end.first_byte_s is not None:
            wait_s = max(0.0, end.first_byte_s - end.opened_s)
            _of(self._first_byte_s, labels, WAIT_S).observe(wait_s)

    def recent(self) -> list[dict[str, Any]]:
        """Return the last rooms as JSON values, the oldest first."""
        return [
            {
                "room": end.room,
                "reason": end.reason,
                "opened_s": end.opened_s,
                "first_byte_s": end.first_byte_s,
                "ended_s": end.ended_s,
                "bytes": end.granted_bytes,
            }
            for end in self._recent.copy()
        ]

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Return the histograms by name, each with its labels."""
        return {
            "room_s": _listed(self._room_s),
            "first_byte_s": _listed(self._first_byte_s),
            "room_bytes": _listed(self._room_bytes),
        }


def _of(
    by_labels: dict[_Labels, Histogram], labels: _Labels, bounds: tuple[float, ...]
) -> Histogram:
    if labels not in by_labels:
        by_labels[labels] = Histogram(bounds)
    return by_labels[labels]


def _listed(by_labels: dict[_Labels, Histogram]) -> list[dict[str, Any]]:
    return [
        {"outcome": outcome, "priority": priority, **histogram.to_json()}
        for (outcome, priority), histogram in by_labels.items()
    ]
