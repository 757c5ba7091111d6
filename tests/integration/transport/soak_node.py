"""One node of a soak in a process of its own; driven by its seed, judged by what it writes down.

Usage: soak_node.py SETTINGS, a JSON object: `role` (send, receive), `name`, `seed`, `log` (a file
of JSON lines), `mode`, `files` (TLS), `limits`. Orders are JSON lines on standard input, each is
answered with one on standard output: `targets`, `quiesce`, `tables`, `quit`.
"""

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from soak_channels import DawdlingChannels
from soak_memory import SCRIBBLE, UNUSED, Arena, layout
from soak_receive import ReceiveDriver
from soak_send import SendDriver
from soak_tables import tables_of

from prfaas.transfer.capability import Secret
from prfaas_transport import TransportConfig
from prfaas_transport.tls import TlsChannels
from prfaas_transport.tls_context import TlsFiles

CHECK_S = 0.1
SETTLE_S = 3.0
CHUNK_BYTES = (0, 300_000, 20_000)


class Log:
    """JSON lines with the time, each written whole before the caller goes on."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __call__(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, "at_s": time.monotonic(), **more})
        os.write(self._fd, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


def config_of(settings: dict[str, Any], problems: list[str]) -> TransportConfig:
    """Return a node's configuration for the soak's mode."""
    more: dict[str, Any] = dict(settings["limits"])
    more["chunk_bytes"] = CHUNK_BYTES[settings["seed"] % len(CHUNK_BYTES)]
    more["compression"] = ("off", "auto")[settings["seed"] % 2]
    if settings["mode"] != "mtls":
        more["channel_factory"] = DawdlingChannels(problems)
    if settings["mode"] == "secret":
        more["secret"] = Secret([b"the secret of this deployment..."])
    if settings["mode"] == "mtls":
        files = TlsFiles(**{name: Path(path) for name, path in settings["files"].items()})
        more["channel_factory"] = TlsChannels(files, deployment="demo", max_lane_age_s=2.0)
    return TransportConfig(**more)


class Watch:
    """Checks memory and the process's size all the time."""

    def __init__(self, arena: Arena) -> None:
        self.rss_bytes: list[int] = []
        self._arena = arena
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(CHECK_S):
            self._arena.check()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.rss_bytes.append(pages * os.sysconf("SC_PAGESIZE"))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def open_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) - 1


def main() -> None:
    settings = json.loads(sys.argv[1])
    log = Log(settings["log"])
    before = {"threads": threading.active_count(), "fds": open_fds()}
    is_sender = settings["role"] == "send"
    arena = Arena(SCRIBBLE, layout(3)) if is_sender else Arena(UNUSED)
    config = config_of(settings, arena.problems)
    driver = (SendDriver if is_sender else ReceiveDriver)(settings, arena, config, log)
    watch = Watch(arena)
    say({"address": driver.address})
    for line in sys.stdin:
        order = json.loads(line)
        if order["order"] == "quit":
            break
        say(answer(order, driver))
    driver.close()
    watch.stop()
    arena.check()
    gc.collect()
    time.sleep(0.05)
    after = {"threads": threading.active_count(), "fds": open_fds()}
    log(
        "closed",
        problems=arena.problems,
        checks=arena.checks,
        rss_bytes=watch.rss_bytes,
        before=before,
        after=after,
    )
    say({"closed": True})


def answer(order: dict[str, Any], driver: Any) -> dict[str, Any]:
    if order["order"] == "targets":
        driver.targets = [tuple(target) for target in order["targets"]]
    if order["order"] == "quiesce":
        return {"is_quiet": driver.quiesce(order["within_s"])}
    if order["order"] == "tables":
        began_s, process_s = time.monotonic(), time.process_time()
        time.sleep(0.5)
        busy = (time.process_time() - process_s) / (time.monotonic() - began_s)
        tables = settled_tables(driver.node)
        return {"tables": tables, "busy": busy, "slowest_call_s": driver.slowest_s}
    return {}


def settled_tables(node: Any) -> dict[str, int]:
    """Return a node's tables once all are empty; lanes that are dialled anew take a moment."""
    until_s = time.monotonic() + SETTLE_S
    while any((tables := tables_of(node)).values()) and time.monotonic() < until_s:
        time.sleep(0.05)
    return tables


def say(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
