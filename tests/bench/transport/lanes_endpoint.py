"""One side of a transfer over lanes, in a process of its own.

Usage: lanes_endpoint.py send|receive HOST JSON. Says `{"port": ...}` first (send), then answers
JSON commands on stdin, one a line, with one line each; ends with stdin.
"""

import json
import queue
import resource
import sys
import threading
import time
from typing import Any

import numpy as np

from prfaas_transport import (
    Entry,
    Group,
    Layout,
    Memory,
    PeerLost,
    ReceiveNode,
    RoomFailed,
    RoomOpened,
    RoomReceived,
    SendNode,
    TransportConfig,
)

PAGE_BYTES = 64 << 10


def make_layout(layers: int, pages: int) -> Layout:
    return Layout((Group("kv", tuple(Entry(PAGE_BYTES, pages) for _ in range(layers))),))


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def make_memory(layout: Layout) -> Memory:
    arrays = [np.ones((e.num_items, e.item_bytes), np.uint8) for e in layout.groups[0].entries]
    return Memory(layout, {"kv": arrays})


class Send:
    """Sends all of every room that is opened, from scattered pages."""

    def __init__(self, host: str, setting: dict[str, Any]) -> None:
        self.layout = make_layout(setting["layers"], setting["pages"])
        self.order = np.random.default_rng(1).permutation(setting["pages"])
        self.submit_s: list[float] = []
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.opened: queue.SimpleQueue[RoomOpened] = queue.SimpleQueue()
        self.is_holding = False
        self.node = SendNode(
            layout=self.layout,
            memory=make_memory(self.layout),
            node_id="bench-send",
            host=host,
            config=TransportConfig(**setting["config"]),
            on_event=self.on_event,
        )
        threading.Thread(target=self._serve, daemon=True).start()

    def on_event(self, event: Any) -> None:
        if isinstance(event, RoomOpened):
            self.opened.put(event)
        elif isinstance(event, RoomFailed | PeerLost):
            self.ended.put((time.time(), event))

    def _serve(self) -> None:
        while True:
            event = self.opened.get()
            count = event.grants["kv"]
            start_s = time.perf_counter()
            self.node.submit(event.room, group="kv", start=0, items=self.order[:count])
            self.submit_s.append(time.perf_counter() - start_s)
            if not self.is_holding:
                self.node.finish(event.room, {"kv": count})

    def command(self, ask: dict[str, Any]) -> dict[str, Any]:
        if ask["do"] == "hold":
            self.is_holding = ask["on"]
            return {}
        if ask["do"] == "ended":
            at_s, event = self.ended.get(timeout=ask["within_s"])
            return {"at_s": at_s, "event": repr(event)}
        submits, self.submit_s = self.submit_s, []
        return {"cpu_s": cpu_s(), "submit_s": submits, "stats": self.node.stats()}


class Receive:
    """Opens rooms at a sender and times them."""

    def __init__(self, host: str, setting: dict[str, Any]) -> None:
        self.layout = make_layout(setting["layers"], setting["pages"])
        self.order = np.random.default_rng(2).permutation(setting["pages"])
        self.address = tuple(setting["address"])
        self.room_bytes = PAGE_BYTES * setting["layers"]
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.next_room = 0
        self.node = ReceiveNode(
            layout=self.layout,
            memory=make_memory(self.layout),
            node_id="bench-receive",
            source_host=host,
            config=TransportConfig(**setting["config"]),
            on_event=self.events.put,
        )
        self.node.connect(self.address)

    def command(self, ask: dict[str, Any]) -> dict[str, Any]:
        return getattr(self, "do_" + ask.pop("do"))(**ask)

    def do_stats(self) -> dict[str, Any]:
        return {"cpu_s": cpu_s(), "stats": self.node.stats()}

    def do_steady(self, *, seconds: float, warm_s: float, pages: int, at_once: int) -> Any:
        """Keep rooms open for a time; return the goodput after the warm-up."""
        begin_s = time.monotonic()
        for _ in range(at_once):
            self._open(pages)
        time.sleep(warm_s)
        marks = [self._mark()]
        while time.monotonic() < begin_s + warm_s + seconds:
            try:
                event = self.events.get(timeout=0.02)
            except queue.Empty:
                continue
            if isinstance(event, RoomReceived):
                self._open(pages)
            elif isinstance(event, RoomFailed | PeerLost):
                return {"error": repr(event)}
        marks.append(self._mark())
        (start_s, start, start_cpu), (end_s, end, end_cpu) = marks
        self._drain(at_once)
        return {
            "seconds": end_s - start_s,
            "bytes": end - start,
            "cpu_s": end_cpu - start_cpu,
        }

    def do_rooms(self, *, sizes: list[int]) -> dict[str, Any]:
        """Open rooms of so many pages at once; return when each was received."""
        start_s = time.monotonic()
        begin = {self._open(pages): index for index, pages in enumerate(sizes)}
        took_s = [0.0] * len(sizes)
        while begin:
            event = self.events.get(timeout=60)
            if isinstance(event, RoomFailed | PeerLost):
                return {"error": repr(event)}
            if isinstance(event, RoomReceived):
                took_s[begin.pop(event.room)] = time.monotonic() - start_s
                self.node.forget(event.room)
        return {"took_s": took_s}

    def do_times(self, *, count: int, pages: int) -> dict[str, Any]:
        """Transfer rooms one after the other; return how long each took."""
        return {"took_s": [self.do_rooms(sizes=[pages])["took_s"][0] for _ in range(count)]}

    def do_open(self, *, pages: int) -> dict[str, Any]:
        return {"room": self._open(pages)}

    def do_progress(self, *, seconds: float, step_s: float) -> dict[str, Any]:
        """Return (time, payload bytes received) every so often."""
        end_s, marks = time.time() + seconds, []
        while time.time() < end_s:
            marks.append((time.time(), self.node.stats()["payload_bytes_received_total"]))
            time.sleep(step_s)
        return {"marks": marks}

    def _open(self, pages: int) -> int:
        self.next_room += 1
        grants = {"kv": self.order[:pages]}
        self.node.open_room(self.next_room, address=self.address, grants=grants)
        return self.next_room

    def _mark(self) -> tuple[float, int, float]:
        received = self.node.stats()["lanes"]
        return time.monotonic(), sum(lane["bytes_received_total"] for lane in received), cpu_s()

    def _drain(self, rooms: int) -> None:
        while rooms:
            rooms -= isinstance(self.events.get(timeout=60), RoomReceived | RoomFailed)


def main() -> None:
    side, host, setting = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    end: Send | Receive
    if side == "send":
        end = Send(host, setting)
        print(json.dumps({"port": end.node.address[1]}), flush=True)
    else:
        end = Receive(host, setting)
        print(json.dumps({"port": 0}), flush=True)
    for line in sys.stdin:
        print(json.dumps(end.command(json.loads(line))), flush=True)
    end.node.close()


if __name__ == "__main__":
    main()
