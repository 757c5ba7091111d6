"""The sending side of a soak: serves every room, in pieces, late, or not to its end."""

import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from soak_memory import LAYOUT, Arena, Items

from prfaas.errors import TransferError
from prfaas_transport import RoomFailed, RoomOpened, RoomSent, SendNode, TransportConfig


@dataclass(eq=False)
class _Room:
    """A room as the prefill sees it. Its items are its own while `is_live`."""

    room: int
    grants: dict[str, int]
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_live: bool = True
    items: Items = field(default_factory=dict)


class SendDriver:
    """Runs a SendNode. Source items are scribbled over the moment their room is over."""

    def __init__(
        self, settings: dict[str, Any], arena: Arena, config: TransportConfig, log: Any
    ) -> None:
        self.slowest_s = 0.0
        self._arena = arena
        self._log = log
        self._rng = np.random.default_rng(settings["seed"])
        self._rooms: dict[int, _Room] = {}
        self._due: list[tuple[float, int, Iterator[float]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._is_closed = False
        self.node = SendNode(
            layout=arena.layout,
            memory=arena.memory(),
            node_id=settings["name"],
            host="127.0.0.1",
            config=config,
            on_event=self._on_event,
        )
        self.address = self.node.address
        self._thread = threading.Thread(target=self._run, name="send-driver")
        self._thread.start()

    def quiesce(self, within_s: float) -> bool:
        """Wait until no room is open."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s and self._rooms:
            time.sleep(0.02)
        return not self._rooms

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        self.node.close()

    def _on_event(self, event: Any) -> None:
        if isinstance(event, RoomOpened):
            self._log("opened", room=event.room, peer=event.peer)
            if event.room not in self._rooms:
                room = self._rooms[event.room] = _Room(event.room, event.grants)
                rng = np.random.default_rng(self._rng.integers(1 << 62))
                self._later(0.0, self._serve(room, rng))
        elif isinstance(event, RoomSent | RoomFailed):
            room = self._rooms.pop(event.room)
            with room.lock:
                self._end(room)
            reason = getattr(event, "reason", "")
            self._log("sent" if not reason else "failed", room=event.room, reason=reason)

    def _end(self, room: _Room) -> None:
        if room.is_live:
            room.is_live = False
            self._arena.give(room.items)

    # The plan of a room

    def _serve(self, room: _Room, rng: np.random.Generator) -> Iterator[float]:
        """Do one step after another; yield how long to wait before the next."""
        fate = rng.choice(["good", "abort", "stall", "lie"], p=[0.82, 0.11, 0.04, 0.03])
        yield float(rng.choice([0.0, 0.0, 0.01, 0.2]))
        if not self._take(room, rng):
            return
        steps = self._steps(room, rng)
        last = int(rng.integers(len(steps) + 1)) if fate in ("abort", "stall") else len(steps)
        for step in steps[:last]:
            with room.lock:
                if not room.is_live:
                    return
                try:
                    step()
                except TransferError:
                    return  # RoomFailed comes, or has come
            yield float(rng.choice([0.0, 0.001, 0.02]))
        if fate == "abort":
            self._abort(room, "prefill_gone")
        elif fate != "stall":
            wrong = int(fate == "lie")
            totals = {name: items.size + wrong for name, items in room.items.items()}
            with room.lock, contextlib.suppress(TransferError):
                if room.is_live:
                    self._timed(lambda: self.node.finish(room.room, totals))
        if fate == "good" and rng.random() < 0.1:
            yield float(rng.random() * 0.05)
            self._abort(room, "after_finish")

    def _take(self, room: _Room, rng: np.random.Generator) -> bool:
        with room.lock:
            if not room.is_live:
                return False
            items = self._arena.take(room.grants, rng)
            room.items = items or {}
        if items is None:
            self._abort(room, "out_of_memory")
        return items is not None

    def _steps(self, room: _Room, rng: np.random.Generator) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = []
        late: list[Callable[[], None]] = []
        token = itertools.count(1)
        for group in LAYOUT.groups:
            size = room.items[group.name].size
            cuts = np.unique(np.concatenate(([0, size], rng.integers(0, size + 1, 3))))
            for start, end in itertools.pairwise(cuts.tolist()):
                for entries in self._entries(len(group.entries), rng):
                    part = (group.name, slice(start, end), entries)
                    if rng.random() < 0.3:
                        number = next(token)
                        steps.append(lambda p=part, n=number: self._submit(room, *p, ready=n))
                        late.append(lambda p=part, n=number: self._ready(room, *p, n))
                    else:
                        steps.append(lambda p=part: self._submit(room, *p))
        return [steps[i] for i in rng.permutation(len(steps))] + late

    def _entries(self, count: int, rng: np.random.Generator) -> list[range]:
        if count == 1 or rng.random() < 0.5:
            return [range(count)]
        middle = int(rng.integers(1, count))
        return [range(middle), range(middle, count)]

    def _submit(
        self, room: _Room, name: str, part: slice, entries: range, ready: int | None = None
    ) -> None:
        if ready is None:
            self._arena.fill(room.room, room.items, name, part, entries)
        self._timed(
            lambda: self.node.submit(
                room.room,
                group=name,
                start=part.start,
                items=room.items[name][part],
                entries=entries,
                ready=ready,
            )
        )

    def _ready(self, room: _Room, name: str, part: slice, entries: range, token: int) -> None:
        """What is not ready holds other bytes until now."""
        self._arena.fill(room.room, room.items, name, part, entries)
        self._timed(lambda: self.node.mark_ready(room.room, token))

    def _abort(self, room: _Room, reason: str) -> None:
        with room.lock:
            if room.is_live:
                self._timed(lambda: self.node.abort(room.room, reason))
                self._end(room)

    def _timed(self, call: Callable[[], None]) -> None:
        began_s = time.monotonic()
        try:
            call()
        finally:
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)

    # The thread

    def _later(self, wait_s: float, plan: Iterator[float]) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + wait_s, next(self._numbers), plan))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and not self._is_due():
                    self._changed.wait(0.02)
                if self._is_closed:
                    return
                _, _, plan = heapq.heappop(self._due)
            wait_s = next(plan, None)
            if wait_s is not None:
                self._later(wait_s, plan)

    def _is_due(self) -> bool:
        return bool(self._due) and self._due[0][0] <= time.monotonic()
