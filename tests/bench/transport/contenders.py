"""The contenders: each moves what it can over a path for a while, and says what that took."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from comparison import Reading
from endpoints import Certificates, Endpoint, lanes_pair
from paths import NetworkPath
from peers import Peer, peer_pair

from prfaas_netem import run_in

STREAMS = 8
ROOMS_AT_ONCE = 4
PAGES_PER_ROOM = 16
"""Of each layer: 15 MB, and four rooms fit into the 1,024 requests that Mooncake queues."""


@dataclass(frozen=True)
class Plan:
    """How long a run takes, and the congestion control of every contender."""

    seconds: float
    warm_s: float
    congestion_control: str


Run = Callable[[NetworkPath, Plan], Reading]


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
    # Its CPU shares are of the whole run, warm-up included; taken as those of the measured part.
    seconds = received["seconds"]
    cpu_s = (cpu[side] / 100 * seconds for side in ("host_total", "remote_total"))
    return Reading(received["bytes"], seconds, *cpu_s)


def plain_copy(path: NetworkPath, plan: Plan, *, digests: bool = False) -> Reading:
    setting: dict[str, Any] = {"streams": STREAMS, "digests": digests}
    setting["congestion_control"] = plan.congestion_control
    args = ("copy_endpoint.py", "send", path.hosts[0], json.dumps(setting))
    with closing(Endpoint(path.namespaces[0], *args)) as send:
        setting["address"] = [path.hosts[0], send.hello["port"]]
        args = ("copy_endpoint.py", "receive", path.hosts[1], json.dumps(setting))
        with closing(Endpoint(path.namespaces[1], *args)) as receive:
            return _steady(send, receive, plan)


def lanes(
    path: NetworkPath, plan: Plan, *, certificates: Certificates | None = None, **config: Any
) -> Reading:
    values = {"congestion_control": plan.congestion_control, "lanes": STREAMS, **config}
    pair = lanes_pair(path.namespaces, path.hosts, values, is_cold=True, certificates=certificates)
    with closing(pair[0]) as send, closing(pair[1]) as receive:
        cold_s = checked(receive.ask("one"))["took_s"]
        more = {"pages": PAGES_PER_ROOM, "at_once": ROOMS_AT_ONCE}
        return _steady(send, receive, plan, cold_s, **more)


def other_library(path: NetworkPath, plan: Plan, *, peer: Peer) -> Reading:
    """Run a peer. What has arrived is counted in the receiver's memory, page by page."""
    with peer_pair(path, peer) as (send, receive):
        receive.put("arrival", page=0, count=1, within_s=15)
        began_s = send.ask("one", page=0)["began_s"]
        cold_s = receive.answer()["at_s"] - began_s
        send.ask("start", at_once=ROOMS_AT_ONCE, pages=PAGES_PER_ROOM)
        time.sleep(plan.warm_s)
        marks = [(receive.ask("stats"), send.ask("stats"))]
        time.sleep(plan.seconds)
        marks.append((receive.ask("stats"), send.ask("stats")))
    (before, before_send), (after, after_send) = marks
    if failures := after_send["failures"]:
        raise RuntimeError(f"{len(failures)} transfers failed, first {failures[0]}")
    return Reading(
        after["bytes"] - before["bytes"],
        after["at_s"] - before["at_s"],
        after_send["cpu_s"] - before_send["cpu_s"],
        after["cpu_s"] - before["cpu_s"],
        cold_s,
    )


def _steady(
    send: Endpoint, receive: Endpoint, plan: Plan, cold_s: float | None = None, **more: Any
) -> Reading:
    receive.put("steady", seconds=plan.seconds, warm_s=plan.warm_s, **more)
    time.sleep(plan.warm_s)
    start = send.ask("stats")["cpu_s"]
    time.sleep(plan.seconds)
    end = send.ask("stats")["cpu_s"]
    got = checked(receive.answer())
    return Reading(got["bytes"], got["seconds"], end - start, got["cpu_s"], cold_s)


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


@contextmanager
def closing(endpoint: Endpoint) -> Iterator[Endpoint]:
    try:
        yield endpoint
    finally:
        endpoint.close()
