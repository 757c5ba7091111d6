"""One side of a transfer over lanes, in a process of its own.

Usage: lanes_endpoint.py send|receive HOST JSON. Says `{"port": ...}` first (send), then answers
JSON commands on stdin, one a line, with one line each; ends with stdin.
"""

import json
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from endpoint_process import Command, converse, cpu_s
from pages import LAYERS, PAGE_BYTES, PAGES, page_order, pages_of_room

from prfaas.wire import Priority
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
from prfaas_transport.tls import TlsChannels
from prfaas_transport.tls_context import TlsFiles

KV = Group("kv", tuple(Entry(PAGE_BYTES, PAGES) for _ in range(LAYERS)))
ONE_PAGE = Group("one", (Entry(PAGE_BYTES, 1),))
LAYOUT = Layout((KV, ONE_PAGE))


def make_memory() -> Memory:
    arrays = {
        group.name: [np.ones((e.num_items, e.item_bytes), np.uint8) for e in group.entries]
        for group in LAYOUT.groups
    }
    return Memory(LAYOUT, arrays)


def make_config(setting: dict[str, Any]) -> TransportConfig:
    """Return the settings; `tls` in them names a certificate's files and the deployment."""
    values = dict(setting["config"])
    if tls := setting.get("tls"):
        files = TlsFiles(*(Path(tls[name]) for name in ("ca", "cert", "key")))
        values["channel_factory"] = TlsChannels(files, deployment=tls["deployment"])
    return TransportConfig(**values)


class Send:
    """Sends all of every room that is opened, from scattered pages."""

    def __init__(self, host: str, setting: dict[str, Any]) -> None:
        self.order = page_order(1)
        self.submit_s: list[float] = []
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.opened: queue.SimpleQueue[RoomOpened] = queue.SimpleQueue()
        self.is_holding = False
        self.node = SendNode(
            layout=LAYOUT,
            memory=make_memory(),
            node_id="bench-send",
            host=host,
            config=make_config(setting),
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
            (group, count), *_ = ((name, n) for name, n in event.grants.items() if n)
            items = np.array([0])
            if group == KV.name:
                items = pages_of_room(self.order, event.room, count)
            start_s = time.perf_counter()
            self.node.submit(event.room, group=group, start=0, items=items)
            self.submit_s.append(time.perf_counter() - start_s)
            if not self.is_holding:
                self.node.finish(event.room, {group: count})

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
        self.order = page_order(2)
        self.address = tuple(setting["address"])
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.next_room = 0
        self.node = ReceiveNode(
            layout=LAYOUT,
            memory=make_memory(),
            node_id="bench-receive",
            source_host=host,
            config=make_config(setting),
            on_event=self.events.put,
        )
        if not setting["is_cold"]:
            self.node.connect(self.address)

    def command(self, ask: dict[str, Any]) -> dict[str, Any]:
        return getattr(self, "do_" + ask.pop("do"))(**ask)

    def do_stats(self) -> dict[str, Any]:
        return {"cpu_s": cpu_s(), "stats": self.node.stats()}

    def do_one(self) -> dict[str, Any]:
        """Return how long a room of a single page takes; connects if there is no connection."""
        start_s = time.monotonic()
        self.next_room += 1
        grants = {ONE_PAGE.name: np.array([0])}
        self.node.open_room(self.next_room, address=self.address, grants=grants)
        while not isinstance(event := self.events.get(timeout=60), RoomReceived):
            if isinstance(event, RoomFailed | PeerLost):
                return {"error": repr(event)}
        return {"took_s": time.monotonic() - start_s}

    def do_steady(self, *, seconds: float, warm_s: float, pages: int, at_once: int) -> Any:
        """Keep rooms open all the time; return the goodput after the warm-up."""
        for _ in range(at_once):
            self._open(pages)
        marks = []
        for span_s in (warm_s, seconds):
            end_s = time.monotonic() + span_s
            while (left_s := end_s - time.monotonic()) > 0:
                try:
                    event = self.events.get(timeout=left_s)
                except queue.Empty:
                    break
                if isinstance(event, RoomReceived):
                    self.node.forget(event.room)
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

    def do_beside(self, *, count: int, pages: int, gap_s: float, background_pages: int) -> Any:
        """Transfer a room after every gap, while a background room is always open.

        Without background pages there is none. Returns how long each room took, and the payload
        bytes per second of everything.
        """
        front, behind, opened_s, took_s = 0, 0, 0.0, []
        start_s, begin = time.monotonic(), self._payload_bytes()
        due_s = start_s + gap_s
        while len(took_s) < count:
            if background_pages and not behind:
                behind = self._open(background_pages, Priority.BACKGROUND)
            if not front and time.monotonic() >= due_s:
                front, opened_s = self._open(pages), time.monotonic()
            try:
                event = self.events.get(timeout=60 if front else max(0, due_s - time.monotonic()))
            except queue.Empty:
                continue
            if isinstance(event, RoomFailed | PeerLost):
                return {"error": repr(event)}
            if isinstance(event, RoomReceived):
                self.node.forget(event.room)
                if event.room == front:
                    took_s.append(time.monotonic() - opened_s)
                    front, due_s = 0, time.monotonic() + gap_s
                else:
                    behind = 0
        rate = (self._payload_bytes() - begin) / (time.monotonic() - start_s)
        return {"took_s": took_s, "bytes_per_s": rate}

    def do_open(self, *, pages: int) -> dict[str, Any]:
        return {"room": self._open(pages)}

    def do_progress(self, *, seconds: float, step_s: float) -> dict[str, Any]:
        """Return (time, payload bytes received) every so often."""
        end_s, marks = time.time() + seconds, []
        while time.time() < end_s:
            marks.append((time.time(), self._payload_bytes()))
            time.sleep(step_s)
        return {"marks": marks}

    def do_wait(self) -> dict[str, Any]:
        """Wait until a room has ended."""
        while not isinstance(event := self.events.get(timeout=60), RoomReceived | RoomFailed):
            pass
        return {"event": repr(event), "stats": self.node.stats()}

    def _open(self, pages: int, priority: Priority = Priority.FOREGROUND) -> int:
        self.next_room += 1
        self.node.open_room(
            self.next_room,
            address=self.address,
            grants={KV.name: pages_of_room(self.order, self.next_room, pages)},
            priority=priority,
        )
        return self.next_room

    def _payload_bytes(self) -> int:
        return self.node.stats()["payload_bytes_received_total"]

    def _mark(self) -> tuple[float, int, float]:
        received = self.node.stats()["lanes"]
        return time.monotonic(), sum(lane["bytes_received_total"] for lane in received), cpu_s()

    def _drain(self, rooms: int) -> None:
        while rooms:
            rooms -= isinstance(self.events.get(timeout=60), RoomReceived | RoomFailed)


def make() -> tuple[dict[str, Any], Command]:
    side, host, setting = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    if side == "send":
        send = Send(host, setting)
        return {"port": send.node.address[1]}, send.command
    return {}, Receive(host, setting).command


if __name__ == "__main__":
    converse(make)
