"""One side of a transfer by another library, in a process of its own.

Usage: peer_endpoint.py LIBRARY send|receive HOST JSON, in the environment of `make
bench-peers-setup`. LIBRARY names a module `peer_LIBRARY` with

    receive_side(host, memory) -> (what a sender must know, as JSON; what must stay alive)
    SendSide(host, memory, that).move(local, remote)   blocks until all these are written

where pages are given as addresses. Every page ends with the number of times it was sent. The
receiver counts these: a library may well say that it is done when its bytes are still in a socket.
"""

import importlib
import json
import resource
import sys
import threading
import time
from typing import Any

import numpy as np
from endpoint_process import Command, converse, cpu_s
from numpy.typing import NDArray
from pages import LAYERS, PAGE_BYTES, PAGES, page_order, pages_of_room

Addresses = NDArray[np.uint64]


class Memory:
    """All pages of all layers, each ending in a counter."""

    def __init__(self) -> None:
        self.bytes = np.ones((LAYERS * PAGES, PAGE_BYTES), np.uint8)
        self.counters = self.bytes[:, -8:].view(np.uint64)[:, 0]
        self.counters[:] = 0
        self.base = self.bytes.ctypes.data

    @property
    def size(self) -> int:
        return self.bytes.nbytes


def rows_of(pages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where these pages of every layer lie in the memory."""
    return (np.arange(LAYERS)[:, None] * PAGES + pages).ravel()


class Receiving:
    def __init__(self, library: Any, host: str) -> None:
        self.memory = Memory()
        known, self.alive = library.receive_side(host, self.memory)
        self.hello = {"known": known, "base": self.memory.base}

    def command(self, ask: dict[str, Any]) -> dict[str, Any]:
        if ask["do"] == "arrival":
            return {"at_s": self._arrival_s(ask["page"], ask["count"], ask["within_s"])}
        arrived = int(self.memory.counters.sum()) * PAGE_BYTES
        return {"at_s": time.monotonic(), "bytes": arrived, "cpu_s": cpu_s()}

    def _arrival_s(self, page: int, count: int, within_s: float) -> float:
        """Return when the page had arrived so many times."""
        give_up_s = time.monotonic() + within_s
        while self.memory.counters[page] < count:
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"page {page} has not arrived in {within_s} s")
            time.sleep(0.0001)
        return time.monotonic()


class Sending:
    def __init__(self, library: Any, host: str, setting: dict[str, Any]) -> None:
        self.memory = Memory()
        self.remote_base = setting["base"]
        self.side = library.SendSide(host, self.memory, setting["known"])
        self.failures: list[str] = []

    def command(self, ask: dict[str, Any]) -> dict[str, Any]:
        if ask["do"] == "one":
            began_s = time.monotonic()
            self._move(np.array([ask["page"]]), np.array([ask["page"]]))
            return {"began_s": began_s}
        if ask["do"] == "start":
            for number in range(ask["at_once"]):
                target = self._keep_moving
                args = (number, ask["at_once"], ask["pages"])
                threading.Thread(target=target, args=args, daemon=True).start()
        return {"cpu_s": cpu_s(), "failures": self.failures}

    def _move(self, here: NDArray[np.int64], there: NDArray[np.int64]) -> None:
        self.memory.counters[here] += 1
        self.side.move(
            self._addresses(self.memory.base, here), self._addresses(self.remote_base, there)
        )

    @staticmethod
    def _addresses(base: int, rows: NDArray[np.int64]) -> Addresses:
        return (base + rows * PAGE_BYTES).astype(np.uint64)

    def _keep_moving(self, number: int, step: int, pages: int) -> None:
        """Move room after room; rooms at the same time have no page in common."""
        here, there = page_order(1), page_order(2)
        while True:
            rows = (rows_of(pages_of_room(order, number, pages)) for order in (here, there))
            try:
                self._move(*rows)
            except Exception as error:
                # Whatever a library raises is its figure's business, said beside the figure.
                self.failures.append(f"{error!r:.200}")
                time.sleep(0.05)
            number += step


def make() -> tuple[dict[str, Any], Command]:
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    library = importlib.import_module(f"peer_{sys.argv[1]}")
    host = sys.argv[3]
    if sys.argv[2] == "receive":
        receiving = Receiving(library, host)
        return receiving.hello, receiving.command
    sending = Sending(library, host, json.loads(sys.argv[4]))
    return {}, sending.command


if __name__ == "__main__":
    converse(make)
