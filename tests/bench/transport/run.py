"""Lanes against iperf3 and a plain copy, and how rooms fare when links and peers go.

Usage: run.py [--out FILE] [--only CASE,...] [--repeats N] [--nice N]. Needs root and iperf3; takes
less than eight minutes. Every path is in network namespaces of its own, which are gone afterwards.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import peers
import rooms
from paths import emulated, veth
from rows import Rows
from throughput import Plan, compare

from prfaas_netem import LinkSpec, problems

LINKS = {
    "1 Gbit/s 20 ms": LinkSpec.parse(rate="1gbit", rtt="20ms"),
    "1 Gbit/s 100 ms": LinkSpec.parse(rate="1gbit", rtt="100ms"),
    "30 ms, 0.1 % loss": LinkSpec.parse(rate="1gbit", rtt="30ms", loss="0.1%"),
    "30 ms, 1 % loss": LinkSpec.parse(rate="1gbit", rtt="30ms", loss="1%"),
}
NOTHING_LOST = LinkSpec.parse(rate="1gbit", rtt="20ms")


def kernel_path(rows: Rows, case: str, rate: str, repeats: int) -> None:
    with veth(rate) as path:
        compare(rows, case, path, Plan(3.0, 1.0, "cubic"), repeats, is_cpu_limited=True)


def emulated_path(rows: Rows, case: str, repeats: int) -> None:
    control = "bbr" if LINKS[case].loss else "cubic"
    with emulated(LINKS[case]) as path:
        compare(rows, case, path, Plan(4.0, 2.0, control), repeats, is_cpu_limited=False)


def rooms_on_wan(rows: Rows) -> None:
    with emulated(NOTHING_LOST) as path:
        rooms.first_and_hundredth(rows, "first room", path, "bbr")
        rooms.mixed_sizes(rows, "64 rooms", path, "bbr")


def rooms_on_veth(rows: Rows) -> None:
    with veth() as path:
        rooms.submit_under_load(rows, "submit", path)


def faults(rows: Rows) -> None:
    with emulated(NOTHING_LOST) as path:
        for _ in range(2):
            rooms.cut_link(rows, "link cut 3 s", path)
        rooms.killed_receiver(rows, "peer killed", path, NOTHING_LOST.rtt_s)
        rooms.vanished_receiver(rows, "peer vanished", path)


def cases(rows: Rows, repeats: int) -> dict[str, Callable[[], None]]:
    return {
        "veth": partial(kernel_path, rows, "veth", "", repeats),
        "10 Gbit/s": partial(kernel_path, rows, "10 Gbit/s", "10gbit", repeats),
        **{name: partial(emulated_path, rows, name, repeats) for name in LINKS},
        "rooms": partial(rooms_on_wan, rows),
        "submit": partial(rooms_on_veth, rows),
        "faults": partial(faults, rows),
        "peers": partial(peers.say_what_is_missing, rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench/transport.json"))
    parser.add_argument("--only", default="", help="names of cases, with commas")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--nice", type=int, default=0, help="of all contenders, on a busy machine")
    options = parser.parse_args()
    missing = [*problems(), *_missing_tools()]
    if missing:
        print("bench-transport:", "; ".join(missing), file=sys.stderr)
        return 2
    os.nice(options.nice)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that namespaces are removed
    began_s, rows = time.monotonic(), Rows()
    known = cases(rows, options.repeats)
    wanted = options.only.split(",") if options.only else list(known)
    failed = 0
    for name in wanted:
        try:
            known[name]()
        except Exception as error:
            # One case that fails must not cost the figures of the others; the row says so.
            rows.add(name, "lanes", f"failed: {error!r:.160}", 0, "1")
            failed += 1
        rows.save(options.out, began_s, options.nice)
    return int(failed > 0)


def _missing_tools() -> list[str]:
    need = {"iperf3": "apt-get install iperf3", "ip": "apt-get install iproute2"}
    return [f"{tool} is missing ({how})" for tool, how in need.items() if not shutil.which(tool)]


if __name__ == "__main__":
    sys.exit(main())
