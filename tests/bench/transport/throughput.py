"""Goodput and CPU of the contenders on one path, in turns."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from endpoints import Endpoint, lanes_pair
from paths import NetworkPath
from rows import Rows, load

from prfaas_netem import run_in

STREAMS = 8
Run = Callable[["NetworkPath", "Plan"], "Reading"]


@dataclass(frozen=True)
class Reading:
    """One run: goodput at the receiver, CPU seconds of both sides, from after the warm-up."""

    bits_per_s: float
    send_cpu_s_per_gb: float
    receive_cpu_s_per_gb: float


@dataclass(frozen=True)
class Plan:
    """How long a run takes, and the congestion control of every contender."""

    seconds: float
    warm_s: float
    congestion_control: str
    pages: int = 64


def iperf3(path: NetworkPath, plan: Plan) -> Reading:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = run_in(path.namespaces[1], ["iperf3", "-s", "-1"], **quiet)
    time.sleep(0.3)
    argv = ["iperf3", "-c", path.hosts[1], "-P", str(STREAMS), "-J", "-C", plan.congestion_control]
    argv += ["-t", str(round(plan.seconds)), "-O", str(round(plan.warm_s))]
    client = run_in(path.namespaces[0], argv, stdout=subprocess.PIPE, text=True)
    try:
        end = json.loads(client.communicate(timeout=60)[0])["end"]
        server.wait(10)
    finally:
        for process in (client, server):
            process.kill()
            process.wait()
    cpu, received = end["cpu_utilization_percent"], end["sum_received"]
    # Its CPU shares are of the whole run, its bytes of what follows the warm-up.
    gb = received["bytes"] / 1e9 * (1 + plan.warm_s / plan.seconds)
    total_s = plan.seconds + plan.warm_s
    return Reading(
        received["bits_per_second"],
        cpu["host_total"] / 100 * total_s / gb,
        cpu["remote_total"] / 100 * total_s / gb,
    )


def plain_copy(path: NetworkPath, plan: Plan) -> Reading:
    setting: dict[str, Any] = {"layers": 32, "pages": 256, "streams": STREAMS}
    setting["congestion_control"] = plan.congestion_control
    script = "copy_endpoint.py"
    with closing(Endpoint(path.namespaces[0], script, "send", path.hosts[0], _text(setting))) as s:
        setting["address"] = [path.hosts[0], s.hello["port"]]
        args = (path.namespaces[1], script, "receive", path.hosts[1], _text(setting))
        with closing(Endpoint(*args)) as r:
            return _steady(s, r, plan)


def lanes(path: NetworkPath, plan: Plan, **config: Any) -> Reading:
    values = {"congestion_control": plan.congestion_control, "lanes": STREAMS, **config}
    send, receive = lanes_pair(path.namespaces, path.hosts, values)
    with closing(send), closing(receive):
        return _steady(send, receive, plan, pages=plan.pages, at_once=3)


def compare(
    rows: Rows, case: str, path: NetworkPath, plan: Plan, repeats: int, *, is_cpu_limited: bool
) -> None:
    """Run all contenders in turns; add their figures, and ours as ratios of theirs."""
    contenders: dict[str, Run] = {"iperf3 -P 8": iperf3, "lanes": lanes}
    if is_cpu_limited:
        contenders["plain copy"] = plain_copy
        contenders["lanes, no checksums"] = partial(lanes, checksums=False)
    readings: dict[str, list[Reading]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            readings[name].append(run(path, plan))
    rates = {}
    for name, got in readings.items():
        gbits = [reading.bits_per_s / 1e9 for reading in got]
        rates[name] = rows.spread(case, name, "goodput", gbits, "Gbit/s")
        for side in ("send", "receive"):
            values = [getattr(reading, f"{side}_cpu_s_per_gb") for reading in got]
            rows.spread(case, name, f"{side}_cpu_per_gb", values, "s/GB")
    for ours in (name for name in contenders if name.startswith("lanes")):
        for other in contenders.keys() - {ours}:
            rows.add(case, ours, f"goodput / {other}", rates[ours] / rates[other], "ratio")
    rows.add(case, "machine", "load_average", load(), "1")


def _steady(send: Endpoint, receive: Endpoint, plan: Plan, **more: Any) -> Reading:
    time.sleep(0.5)
    receive.put("steady", seconds=plan.seconds, warm_s=plan.warm_s, **more)
    time.sleep(plan.warm_s)
    start = send.ask("stats")["cpu_s"]
    time.sleep(plan.seconds)
    end = send.ask("stats")["cpu_s"]
    got = receive.answer()
    if "error" in got:
        raise RuntimeError(got["error"])
    gb = got["bytes"] / 1e9
    return Reading(got["bytes"] * 8 / got["seconds"], (end - start) / gb, got["cpu_s"] / gb)


@contextmanager
def closing(endpoint: Endpoint) -> Iterator[Endpoint]:
    try:
        yield endpoint
    finally:
        endpoint.close()


def _text(setting: dict[str, Any]) -> str:
    return json.dumps(setting)
