"""The transfers that ended of late, as the engine tells them: who traces a request asks for one."""

import time
from collections.abc import Mapping
from typing import Any

MAX_ROOMS = 1024


class RoomBook:
    """Keeps the last rooms by number. The engine's times are of this machine's monotonic clock."""

    def __init__(self) -> None:
        self._rooms: dict[int, dict[str, Any]] = {}

    def take(self, values: Mapping[str, Any]) -> None:
        """Take what the engine's counters say of rooms; what is not as it should be is left out."""
        recent = values.get("recent_rooms")
        ahead_s = time.time() - time.monotonic()
        for raw in recent[:MAX_ROOMS] if isinstance(recent, list) else ():
            room = raw.get("room") if isinstance(raw, dict) else None
            if type(room) is int and room not in self._rooms:
                self._rooms[room] = _told(raw, ahead_s)
        for room in list(self._rooms)[: max(len(self._rooms) - MAX_ROOMS, 0)]:
            del self._rooms[room]

    def find(self, room: int) -> dict[str, Any] | None:
        """Return what is known of a room as JSON values, in Unix times; None if nothing is."""
        return self._rooms.get(room)


def _told(raw: Mapping[str, Any], ahead_s: float) -> dict[str, Any]:
    told: dict[str, Any] = {"reason": str(raw.get("reason", ""))[:200]}
    for name in ("opened", "first_byte", "ended"):
        at_s = raw.get(f"{name}_s")
        told[f"{name}_at_s"] = at_s + ahead_s if isinstance(at_s, int | float) else None
    told["bytes"] = raw["bytes"] if type(raw.get("bytes")) is int else 0
    return told
