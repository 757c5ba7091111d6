"""Lanes beside iperf3, a plain copy and other libraries, and how rooms fare when things go wrong.

Usage: run.py [--out FILE] [--only CASE,...] [--repeats N] [--nice N]. Needs root, iperf3 and what
`make bench-peers-setup` installs; takes some twelve minutes. Every path is in network namespaces
of its own, which are gone afterwards. With --only, other cases' rows in FILE stay.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import compression
import encryption
import faults
import peers
import rooms
from comparison import COPY_WITH_DIGESTS, LANES, NO_DIGESTS, PLAIN_COPY
from contenders import Plan, Run, lanes, plain_copy
from paths import LOSS_TOLERANT, NetworkPath, emulated, veth
from rows import Rows, load
from throughput import EVERYWHERE, compare

from prfaas_netem import LinkSpec, problems

LINKS = {
    "1 Gbit/s 20 ms": LinkSpec.parse(rate="1gbit", rtt="20ms"),
    "1 Gbit/s 100 ms": LinkSpec.parse(rate="1gbit", rtt="100ms"),
    "30 ms, 0.1 % loss": LinkSpec.parse(rate="1gbit", rtt="30ms", loss="0.1%"),
    "30 ms, 1 % loss": LinkSpec.parse(rate="1gbit", rtt="30ms", loss="1%"),
    "200 Mbit/s 30 ms, 0.1 % loss": LinkSpec.parse(rate="200mbit", rtt="30ms", loss="0.1%"),
    "200 Mbit/s 30 ms, 1 % loss": LinkSpec.parse(rate="200mbit", rtt="30ms", loss="1%"),
}
NOTHING_LOST = LINKS["1 Gbit/s 20 ms"]
AS_INSTALLED = ", as installed"
LOSSY = [name for name, link in LINKS.items() if link.loss]

Case = Callable[[Rows, str, int], None]
Measure = Callable[[Rows, str, NetworkPath, int], None]


def kernel_path(rows: Rows, case: str, repeats: int, rate: str = "") -> None:
    contenders: dict[str, Run] = {**EVERYWHERE, PLAIN_COPY: plain_copy}
    contenders[COPY_WITH_DIGESTS] = partial(plain_copy, digests=True)
    with veth(rate) as path, tempfile.TemporaryDirectory() as folder:
        if not rate:
            made = encryption.lane_certificates(Path(folder))
            contenders[NO_DIGESTS] = partial(lanes, checksums=False)
            contenders["lanes, TLS"] = partial(lanes, certificates=made)
        compare(rows, case, path, Plan(2.0, 1.0, "cubic"), repeats, contenders)


def emulated_path(rows: Rows, case: str, repeats: int) -> None:
    link = LINKS[case]
    control = LOSS_TOLERANT if link.loss else "cubic"
    seconds, warm_s = (3.0, 2.0) if link.rtt_s > 0.05 else (2.0, 1.0)
    with emulated(link) as path:
        compare(rows, case, path, Plan(seconds, warm_s, control), repeats)


def as_installed(rows: Rows, case: str, repeats: int) -> None:
    """Everyone at default settings on a link that loses packets: the system's cubic, and lanes that
    find out by themselves that it does.
    """
    with emulated(LINKS[case.removesuffix(AS_INSTALLED)]) as path:
        contenders = {**EVERYWHERE, LANES: partial(lanes, lanes=0, congestion_control="auto")}
        compare(rows, case, path, Plan(4.0, 4.0, "cubic"), repeats, contenders)


def on_wan(measure: Measure) -> Case:
    """Return a case of this measure on a link that loses nothing."""

    def run(rows: Rows, case: str, repeats: int) -> None:
        with emulated(NOTHING_LOST) as path:
            measure(rows, case, path, repeats)

    return run


def on_veth(measure: Measure) -> Case:
    """Return a case of this measure where only the CPU is the limit."""

    def run(rows: Rows, case: str, repeats: int) -> None:
        with veth() as path:
            measure(rows, case, path, repeats)

    return run


def tls(rows: Rows, case: str, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        encryption.channel_cost(rows, case, Path(folder), repeats)


CASES: Mapping[str, Case] = {
    "veth": kernel_path,
    "10 Gbit/s": partial(kernel_path, rate="10gbit"),
    **dict.fromkeys(LINKS, emulated_path),
    **{name + AS_INSTALLED: as_installed for name in LOSSY},
    "first room": on_wan(rooms.first_and_hundredth),
    "64 rooms": on_wan(rooms.mixed_sizes),
    "background": on_wan(rooms.beside_background),
    "submit": on_veth(rooms.submit_under_load),
    "compression": on_wan(compression.off_and_auto),
    "compression, veth": on_veth(compression.off_and_auto),
    "link cut 3 s": on_wan(faults.cut_link),
    "peer killed": on_wan(partial(faults.lost_receiver, is_killed=True)),
    "peer vanished": on_wan(partial(faults.lost_receiver, is_killed=False)),
    "TLS": tls,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench/transport.json"))
    parser.add_argument("--only", default="", help="names of cases, with semicolons")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--nice", type=int, default=0, help="of all contenders, on a busy machine")
    options = parser.parse_args()
    wanted = options.only.split(";") if options.only else list(CASES)
    unknown = [f"no case {name!r} among {', '.join(CASES)}" for name in wanted if name not in CASES]
    if missing := [*unknown, *problems(), *_missing_tools()]:
        print("bench-transport:", "; ".join(missing), file=sys.stderr)
        return 2
    os.nice(options.nice)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that namespaces are removed
    rows = Rows(options.out, keep=bool(options.only), nice=options.nice)
    for name in wanted:
        began_s = time.monotonic()
        rows.begin(name)
        try:
            CASES[name](rows, name, options.repeats)
        except Exception as error:
            # One case that fails must not cost the figures of the others; the row says so.
            rows.failed(name, "case", error)
        rows.add(name, "machine", "time taken", time.monotonic() - began_s, "s")
        rows.add(name, "machine", "load average", load(), "1")
        rows.save()
    return int(rows.num_failed > 0)


def _missing_tools() -> list[str]:
    need = ("iperf3", "ip", "tc", "openssl")
    missing = [f"{tool} is missing (make setup)" for tool in need if not shutil.which(tool)]
    if not peers.are_installed():
        missing.append("the other libraries are missing (make bench-peers-setup)")
    return missing


if __name__ == "__main__":
    sys.exit(main())
