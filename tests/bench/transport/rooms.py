"""How single rooms fare: the first, the small among large, and those whose link or peer goes."""

import time
from typing import Any

from endpoints import lanes_pair
from paths import NetworkPath
from rows import Rows
from throughput import closing

import prfaas_netem

LIVENESS_S = 0.66  # three silent periods are the two seconds within which a peer is missed


def first_and_hundredth(rows: Rows, case: str, path: NetworkPath, congestion_control: str) -> None:
    """A small room right after registration, and after a hundred others."""
    config = {"lanes": 8, "congestion_control": congestion_control}
    send, receive = lanes_pair(path.namespaces, path.hosts, config)
    with closing(send), closing(receive):
        time.sleep(2.0)
        took_s = receive.ask("times", count=100, pages=1)["took_s"]
        rows.add(case, "lanes", "first 2 MB room", 1000 * took_s[0], "ms")
        late = took_s[-21:]
        rows.spread(case, "lanes", "80th to 100th 2 MB room", [1000 * t for t in late], "ms")
        time.sleep(5.0)
        idle_s = receive.ask("times", count=1, pages=1)["took_s"][0]
        rows.add(case, "lanes", "after 5 s of silence", 1000 * idle_s, "ms")
        median_s = sorted(late)[len(late) // 2]
        rows.add(case, "lanes", "first / hundredth", took_s[0] / median_s, "ratio")


def mixed_sizes(rows: Rows, case: str, path: NetworkPath, congestion_control: str) -> None:
    """64 rooms at once: 56 of one page, 8 of 32; small ones alone for comparison."""
    config = {"lanes": 8, "congestion_control": congestion_control}
    send, receive = lanes_pair(path.namespaces, path.hosts, config)
    small, large = [1] * 56, [32] * 8
    sizes = [size for group in range(8) for size in (large[group], *small[group * 7 :][:7])]
    with closing(send), closing(receive):
        time.sleep(1.0)
        receive.ask("rooms", sizes=small)
        alone = sorted(receive.ask("rooms", sizes=small)["took_s"])
        took_s = receive.ask("rooms", sizes=sizes)["took_s"]
    mixed = sorted(t for t, size in zip(took_s, sizes, strict=True) if size == 1)
    for name, values in (("56 small rooms alone", alone), ("56 small rooms among 8 large", mixed)):
        rows.add(case, "lanes", f"{name}, p50", 1000 * values[len(values) // 2], "ms")
        rows.add(case, "lanes", f"{name}, p99", 1000 * values[-1], "ms")
    rows.add(case, "lanes", "all 64 rooms", 1000 * max(took_s), "ms")


def submit_under_load(rows: Rows, case: str, path: NetworkPath) -> None:
    """How long the scheduler's thread is held by submit() while the lanes are full."""
    send, receive = lanes_pair(path.namespaces, path.hosts, {"lanes": 8})
    with closing(send), closing(receive):
        time.sleep(0.5)
        receive.ask("steady", seconds=4, warm_s=0.5, pages=1, at_once=24)
        took_s = sorted(send.ask("stats")["submit_s"])
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        value = took_s[min(len(took_s) - 1, int(share * len(took_s)))]
        rows.add(case, "lanes", f"submit(), {name}", 1000 * value, "ms")


def cut_link(rows: Rows, case: str, path: NetworkPath, cut_s: float = 3.0) -> None:
    """Drop every packet for a while; time from its return until bytes flow again."""
    config = {"lanes": 8, "liveness_s": 5.0, "congestion_control": "bbr"}
    send, receive = lanes_pair(path.namespaces, path.hosts, config)
    with closing(send), closing(receive):
        time.sleep(1.0)
        receive.ask("open", pages=128)
        receive.put("progress", seconds=cut_s + 4.0, step_s=0.01)
        time.sleep(0.8)
        before = _resent(send)
        _set_loss(path, 1.0)
        time.sleep(cut_s)
        _set_loss(path, 0.0)
        back_s = time.time()
        marks = receive.answer()["marks"]
        rows.add(case, "lanes", "flowing again after", _flows_again_s(marks, back_s), "s")
        after = _resent(send)
        rows.add(case, "lanes", "chunks resent", after[0] - before[0], "1")
        rows.add(case, "kernel", "bytes resent (TCP)", after[1] - before[1], "bytes")


def _set_loss(path: NetworkPath, loss: float) -> None:
    assert path.control is not None
    assert path.topology is not None
    prfaas_netem.set_link(path.control, path.topology.link.merged({"loss": loss}))


def _flows_again_s(marks: list[list[float]], back_s: float) -> float:
    held = max((count for at_s, count in marks if at_s <= back_s), default=0)
    return next((at_s - back_s for at_s, n in marks if at_s > back_s and n > held), float("nan"))


def _resent(send: Any) -> tuple[int, int]:
    stats = send.ask("stats")["stats"]
    in_kernel = sum(lane["tcp"].get("bytes_retrans", 0) for lane in stats["lanes"])
    return stats["chunks_resent_total"], in_kernel


def killed_receiver(rows: Rows, case: str, path: NetworkPath, rtt_s: float) -> None:
    """The receiver's process is killed in the middle of a room."""
    send, receive = lanes_pair(path.namespaces, path.hosts, {"lanes": 8})
    with closing(send), closing(receive):
        time.sleep(1.0)
        receive.ask("open", pages=128)
        time.sleep(0.5)
        killed_s = time.time()
        receive.process.kill()
        ended = send.ask("ended", within_s=20)
    rows.add(case, "lanes", "room failed on the sender after", ended["at_s"] - killed_s, "s")
    rows.add(case, "goal", "room failed on the sender after", rtt_s + 0.1, "s")


def vanished_receiver(rows: Rows, case: str, path: NetworkPath) -> None:
    """Nothing passes any more, and nobody says so."""
    config = {"lanes": 8, "liveness_s": LIVENESS_S}
    send, receive = lanes_pair(path.namespaces, path.hosts, config)
    with closing(send), closing(receive):
        time.sleep(1.0)
        receive.ask("open", pages=128)
        time.sleep(0.5)
        gone_s = time.time()
        _set_loss(path, 1.0)
        ended = send.ask("ended", within_s=30)
        _set_loss(path, 0.0)
    rows.add(case, "lanes", "room failed on the sender after", ended["at_s"] - gone_s, "s")
    rows.add(case, "goal", "room failed on the sender after", 3 * LIVENESS_S + 0.2, "s")
