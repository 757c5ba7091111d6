"""The receiving side of a soak: opens rooms of all kinds at all senders, and gives some up."""

import heapq
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from soak_memory import LAYOUT, Arena, Items

from prfaas.errors import TransferError
from prfaas.wire.frames import Priority
from prfaas_transport import ReceiveNode, RoomFailed, RoomReceived, TransportConfig

Address = tuple[str, int]
MOST_OPEN = 10


@dataclass(eq=False)
class _Room:
    """One opening of a room; its items are its own until `is_over`."""

    room: int
    attempt: int
    items: Items
    is_over: bool = False


class ReceiveDriver:
    """Runs a ReceiveNode. Destination items are overwritten the moment their room is over."""

    def __init__(
        self, settings: dict[str, Any], arena: Arena, config: TransportConfig, log: Any
    ) -> None:
        self.slowest_s = 0.0
        self.targets: list[Address] = []
        self.address = None
        self._arena = arena
        self._log = log
        self._rng = np.random.default_rng(settings["seed"])
        self._next = int(settings["first_room"])
        self._attempts = 0
        self._awaited: dict[int, deque[_Room]] = {}
        self._pause_until_s = 0.0
        self._aborts: list[tuple[float, int, _Room]] = []
        self._ended: list[int] = []
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_opening = True
        self._is_closed = False
        self.node = ReceiveNode(
            layout=LAYOUT,
            memory=arena.memory(),
            node_id=settings["name"],
            source_host="127.0.0.1",
            config=config,
            on_event=self._on_event,
        )
        self._thread = threading.Thread(target=self._run, name="receive-driver")
        self._thread.start()

    def quiesce(self, within_s: float) -> bool:
        """Open no more rooms; wait until all have ended."""
        self._is_opening = False
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s and self._awaited:
            time.sleep(0.02)
        return not self._awaited

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()
        self.node.close()

    def _on_event(self, event: Any) -> None:
        if isinstance(event, RoomReceived | RoomFailed):
            self._events.put(event)

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._end(self._events.get(timeout=0.005))
                continue
            except queue.Empty:
                pass
            while self._aborts and self._aborts[0][0] <= time.monotonic():
                self._abort(heapq.heappop(self._aborts)[2])
            has_room = len(self._awaited) < MOST_OPEN and time.monotonic() >= self._pause_until_s
            if self._is_opening and self.targets and has_room:
                self._open()
            if self._is_opening and self.targets and self._rng.random() < 0.0005:
                self._log("disconnect")
                self.node.disconnect(self._target())

    def _target(self) -> Address:
        return self.targets[int(self._rng.integers(len(self.targets)))]

    def _open(self) -> None:
        rng = self._rng
        number, again = self._next, bool(self._ended) and rng.random() < 0.15
        if again:
            number = self._ended[int(rng.integers(len(self._ended)))]
        else:
            self._next += 1
        items = self._arena.take(self._counts(number), rng)
        if items is None or (again and number in self._awaited):
            if items is not None:
                self._arena.give(items)
            return
        self._attempts += 1
        room = _Room(number, self._attempts, items)
        is_background = rng.random() < 0.2
        self._log("open", room=number, attempt=room.attempt)
        self._awaited.setdefault(number, deque()).append(room)
        try:
            self._timed(
                lambda: self.node.open_room(
                    number,
                    address=self._target(),
                    grants=items,
                    prefix_tokens=room.attempt,
                    priority=Priority.BACKGROUND if is_background else Priority.FOREGROUND,
                )
            )
        except TransferError as error:
            self._events.put(RoomFailed(number, error.reason, error.detail))
            return
        if rng.random() < 0.25:
            wait_s = float(rng.choice([0.0, 0.01, 0.1, 0.5])) * float(rng.random())
            heapq.heappush(self._aborts, (time.monotonic() + wait_s, self._attempts, room))

    def _counts(self, number: int) -> dict[str, int]:
        """Return how many items the room has of every group: a function of the room."""
        rng = np.random.default_rng(number)
        size = rng.choice(["empty", "small", "middle", "large"], p=[0.05, 0.45, 0.35, 0.15])
        kv = {"empty": 0, "small": 2, "middle": 30, "large": 110}[size]
        states = int(rng.integers(0, 4)) if size != "empty" else 0
        counts = [int(rng.integers(kv // 2, kv + 1)), states, int(size != "empty")]
        return {group.name: n for group, n in zip(LAYOUT.groups, counts, strict=True)}

    def _abort(self, room: _Room) -> None:
        if room.is_over:
            return
        self._timed(lambda: self.node.abort(room.room, "client_gone"))
        self._let_go(room, is_whole=False)

    def _let_go(self, room: _Room, *, is_whole: bool) -> None:
        if not room.is_over:
            room.is_over = True
            self._arena.judge(room.room, room.items, is_whole=is_whole)
            self._arena.give(room.items)

    def _end(self, event: Any) -> None:
        waiting = self._awaited[event.room]
        room = waiting.popleft()
        if not waiting:
            del self._awaited[event.room]
        reason = getattr(event, "reason", "")
        if reason == "connect_failed":
            self._pause_until_s = time.monotonic() + 0.1
        self._let_go(room, is_whole=not reason)
        self._log(
            "received" if not reason else "failed",
            room=event.room,
            attempt=room.attempt,
            reason=reason,
        )
        if room.room not in self._ended:
            self._ended.append(room.room)
            del self._ended[:-50]

    def _timed(self, call: Callable[[], None]) -> None:
        began_s = time.monotonic()
        try:
            call()
        finally:
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
