"""What encoding chunks gains where the link is the limit, and costs where it is not."""

import json
import time
from typing import Any, NamedTuple

from endpoints import Endpoint
from paths import NetworkPath
from rows import Rows, load

WARM_S = 3.0
SECONDS = 4.0
MOST_REPEATS = 2
CHOICES = ("off", "auto")


class Run(NamedTuple):
    """One run: Gbit/s of payload as decoded, CPU seconds per decoded GB, and how it ended."""

    gbits: float
    send_cpu_s_per_gb: float
    receive_cpu_s_per_gb: float
    state: dict[str, Any]


def off_and_auto(rows: Rows, case: str, path: NetworkPath, repeats: int) -> None:
    """Run both in turns; add their figures and the ratio of the goodputs."""
    path.use_congestion_control("cubic")
    runs: dict[str, list[Run]] = {choice: [] for choice in CHOICES}
    for _ in range(min(repeats, MOST_REPEATS)):
        for choice in CHOICES:
            runs[choice].append(_run(path, choice))
    goodput = {}
    for choice, got in runs.items():
        name = f"compression {choice}"
        goodput[choice] = rows.spread(
            case, name, "payload, decoded", [r.gbits for r in got], "Gbit/s"
        )
        for side, used in (("sending", 1), ("receiving", 2)):
            rows.spread(case, name, f"CPU {side}", [run[used] for run in got], "s/GB")
        rows.add(case, name, "verdict", ", ".join(r.state["verdict"] for r in got), "")
        rows.add(case, name, "chunks encoded", got[-1].state["chunks_encoded"], "1")
    rows.add(case, "compression auto", "payload / off", goodput["auto"] / goodput["off"], "ratio")
    rows.add(case, "machine", "load average", load(), "1")


def _run(path: NetworkPath, choice: str) -> Run:
    config = {"lanes": 8, "congestion_control": "cubic", "compression": choice}
    setting: dict[str, Any] = {"config": config}
    script, name, host = "compression_endpoint.py", path.namespaces, path.hosts
    send = Endpoint(name[0], script, "send", host[0], json.dumps(setting))
    try:
        setting["address"] = [host[0], send.hello["port"]]
        receive = Endpoint(name[1], script, "receive", host[1], json.dumps(setting))
        try:
            return _measure(send, receive)
        finally:
            receive.close()
    finally:
        send.close()


def _measure(send: Endpoint, receive: Endpoint) -> Run:
    receive.put("steady", warm_s=WARM_S, seconds=SECONDS)
    time.sleep(WARM_S)
    before = send.ask("stats")
    time.sleep(SECONDS)
    after, got = send.ask("stats"), receive.answer()
    gb = got["bytes"] / 1e9
    stats = after["stats"]
    (peer,) = stats["peers"].values()
    state = {**peer["compression"], "chunks_encoded": stats["chunks_encoded_total"]}
    sent_cpu_s = after["cpu_s"] - before["cpu_s"]
    return Run(got["bytes_per_s"] * 8 / 1e9, sent_cpu_s / gb, got["cpu_s"] / gb, state)
