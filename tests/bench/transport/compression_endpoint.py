"""One side of a transfer of bytes like those of a KV cache, in a process of its own.

Usage: compression_endpoint.py send|receive HOST JSON, see `endpoint_process`.
"""

import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from endpoint_process import Command, converse, cpu_s
from pages import LAYERS, PAGE_BYTES, PAGES, page_order, pages_of_room

from prfaas_transport import (
    Entry,
    Group,
    Layout,
    Memory,
    ReceiveNode,
    RoomOpened,
    RoomReceived,
    SendNode,
    TransportConfig,
)

LAYOUT = Layout((Group("kv", (Entry(PAGE_BYTES, PAGES),) * LAYERS),))
ROOM_PAGES = 64
AT_ONCE = 3


def memory(fill: Callable[[int], Any]) -> Memory:
    return Memory(LAYOUT, {"kv": [fill(layer) for layer in range(LAYERS)]})


def kv_like(layer: int) -> Any:
    """bfloat16: Gaussian, channels with scales of their own (tests/support/kv_bytes.py)."""
    rng = np.random.default_rng(layer)
    scales = np.exp(rng.normal(0, 0.5, 1024))
    values = (rng.normal(size=(512, 1024)) * scales).astype(np.float32)
    rounded = (values.view(np.uint32) >> 16).astype(np.uint16)
    return np.resize(rounded.view(np.uint8), PAGE_BYTES * PAGES)


class Send:
    """Sends all of every room that is opened."""

    def __init__(self, host: str, config: dict[str, Any]) -> None:
        self.order = page_order(1)
        self.opened: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.node = SendNode(
            layout=LAYOUT,
            memory=memory(kv_like),
            node_id="bench-send",
            host=host,
            config=TransportConfig(**config),
            on_event=lambda event: isinstance(event, RoomOpened) and self.opened.put(event),
        )
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while event := self.opened.get():
            count = event.grants["kv"]
            items = pages_of_room(self.order, event.room, count)
            self.node.submit(event.room, group="kv", start=0, items=items)
            self.node.finish(event.room, event.grants)

    def command(self, _ask: dict[str, Any]) -> dict[str, Any]:
        return {"cpu_s": cpu_s(), "stats": self.node.stats()}


class Receive:
    """Keeps some rooms open."""

    def __init__(self, host: str, address: tuple[str, int], config: dict[str, Any]) -> None:
        self.order = page_order(2)
        self.address = address
        self.room = 0
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.node = ReceiveNode(
            layout=LAYOUT,
            memory=memory(lambda _: np.ones(PAGE_BYTES * PAGES, np.uint8)),
            node_id="bench-receive",
            source_host=host,
            config=TransportConfig(**config),
            on_event=self.events.put,
        )

    def command(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Return the goodput after `warm_s`, in payload bytes per second, and CPU seconds."""
        begin_s = time.monotonic()
        for _ in range(AT_ONCE):
            self._open()
        self._run_until(begin_s + ask["warm_s"])
        marks = [self._mark()]
        self._run_until(begin_s + ask["warm_s"] + ask["seconds"])
        marks.append(self._mark())
        seconds, num_bytes, used_s = (end - start for start, end in zip(*marks, strict=True))
        return {"bytes_per_s": num_bytes / seconds, "bytes": num_bytes, "cpu_s": used_s}

    def _run_until(self, end_s: float) -> None:
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                event = self.events.get(timeout=left_s)
            except queue.Empty:
                return
            if isinstance(event, RoomReceived):
                self._open()

    def _open(self) -> None:
        self.room += 1
        grants = {"kv": pages_of_room(self.order, self.room, ROOM_PAGES)}
        self.node.open_room(self.room, address=self.address, grants=grants)

    def _mark(self) -> tuple[float, float, float]:
        received = self.node.stats()["payload_bytes_received_total"]
        return time.monotonic(), float(received), cpu_s()


def make() -> tuple[dict[str, Any], Command]:
    side, host, setting = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    if side == "send":
        send = Send(host, setting["config"])
        return {"port": send.node.address[1]}, send.command
    address = (setting["address"][0], setting["address"][1])
    return {}, Receive(host, address, setting["config"]).command


if __name__ == "__main__":
    converse(make)
