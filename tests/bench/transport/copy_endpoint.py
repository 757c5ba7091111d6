"""The least that any transport must do: threads that copy scattered pages through sockets.

Usage: copy_endpoint.py send|receive HOST JSON. No framing, no rooms, no faults; each of its streams
sends 1 MB a call from distinct pages and receives into distinct pages. Commands as those of
`lanes_endpoint.py`. With `"digests": true` either side also reads all of it once more for its XXH3,
as lanes without TLS do.
"""

import json
import socket
import sys
import threading
import time
from typing import Any

import numpy as np
import xxhash
from endpoint_process import cpu_s
from pages import LAYERS, PAGE_BYTES, PAGES, page_order

PAGES_PER_CALL = 16


def scattered(num_pages: int = LAYERS * PAGES) -> list[list[memoryview]]:
    """Return lists of pages in random order, a call's worth each."""
    memory = memoryview(np.ones(num_pages * PAGE_BYTES, np.uint8).data)
    order = page_order(1, num_pages).tolist()
    pages = [memory[i * PAGE_BYTES : (i + 1) * PAGE_BYTES] for i in order]
    return [pages[i : i + PAGES_PER_CALL] for i in range(0, num_pages, PAGES_PER_CALL)]


def tune(sock: socket.socket, congestion_control: str) -> None:
    if congestion_control:
        name = congestion_control.encode()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)


def digest(pages: list[memoryview], num_bytes: int) -> None:
    """Compute the digest of the first bytes of the pages."""
    state = xxhash.xxh3_64()
    for page in pages:
        if num_bytes <= 0:
            break
        state.update(page[:num_bytes])
        num_bytes -= len(page)
    state.intdigest()


def feed(sock: socket.socket, calls: list[list[memoryview]], at: int, *, has_digests: bool) -> None:
    try:
        while True:
            left = calls[at % len(calls)]
            at += 1
            if has_digests:
                digest(left, PAGES_PER_CALL * PAGE_BYTES)
            while left:
                sent = sock.sendmsg(left)
                while left and sent >= len(left[0]):
                    sent -= len(left[0])
                    left = left[1:]
                if left:
                    left = [left[0][sent:], *left[1:]]
    except OSError:
        return


class Drain:
    def __init__(
        self, sock: socket.socket, calls: list[list[memoryview]], at: int, *, has_digests: bool
    ) -> None:
        self.sock, self.calls, self.at = sock, calls, at
        self.has_digests = has_digests
        self.num_bytes = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            call = self.calls[self.at % len(self.calls)]
            got = self.sock.recvmsg_into(call)[0]
            if not got:
                return
            if self.has_digests:
                digest(call, got)
            self.at += 1
            self.num_bytes += got


def serve(host: str, setting: dict[str, Any]) -> None:
    listener = socket.create_server((host, 0))
    calls = scattered()
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    for number in range(setting["streams"]):
        sock, _ = listener.accept()
        tune(sock, setting["congestion_control"])
        at = number * len(calls) // setting["streams"]
        options = {"has_digests": setting["digests"]}
        threading.Thread(target=feed, args=(sock, calls, at), kwargs=options, daemon=True).start()
    for _ in sys.stdin:
        print(json.dumps({"cpu_s": cpu_s()}), flush=True)


def receive(host: str, setting: dict[str, Any]) -> None:
    calls = scattered()
    address = tuple(setting["address"])
    print(json.dumps({"port": 0}), flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        drains = []
        for number in range(setting["streams"]):
            sock = socket.create_connection(address, source_address=(host, 0))
            at = number * len(calls) // setting["streams"]
            drains.append(Drain(sock, calls, at, has_digests=setting["digests"]))
        time.sleep(ask["warm_s"])
        marks = []
        for wait_s in (ask["seconds"], 0):
            marks.append((time.monotonic(), sum(d.num_bytes for d in drains), cpu_s()))
            time.sleep(wait_s)
        (start_s, start, start_cpu), (end_s, end, end_cpu) = marks
        answer = {"seconds": end_s - start_s, "bytes": end - start, "cpu_s": end_cpu - start_cpu}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    {"send": serve, "receive": receive}[sys.argv[1]](sys.argv[2], json.loads(sys.argv[3]))
