"""How single rooms fare: the first and the hundredth, the small among large, the urgent ones."""

import time

from comparison import FIRST_WARM, percentile
from contenders import checked, closing
from endpoints import lanes_pair
from paths import LOSS_TOLERANT, NetworkPath
from rows import Rows

SMALL, LARGE = 2, 32
"""Pages of every layer: rooms of 2 MB and of 31 MB."""
CONFIG = {"lanes": 8, "congestion_control": LOSS_TOLERANT}


def first_and_hundredth(rows: Rows, case: str, path: NetworkPath, repeats: int) -> None:
    """A small room right after registration, and after a hundred others."""
    page_ms, first_ms, late_ms, idle_ms, ratios = [], [], [], [], []
    for _ in range(repeats):
        send, receive = lanes_pair(path.namespaces, path.hosts, CONFIG)
        with closing(send), closing(receive):
            time.sleep(2.0)
            page_ms.append(1000 * checked(receive.ask("one"))["took_s"])
        send, receive = lanes_pair(path.namespaces, path.hosts, CONFIG)
        with closing(send), closing(receive):
            time.sleep(2.0)
            took_s = receive.ask("times", count=100, pages=SMALL)["took_s"]
            time.sleep(5.0)
            idle_ms.append(1000 * receive.ask("times", count=1, pages=SMALL)["took_s"][0])
        first_ms.append(1000 * took_s[0])
        late_ms.append(1000 * percentile(took_s[-21:], 0.5))
        ratios.append(first_ms[-1] / late_ms[-1])
    rows.spread(case, "lanes", FIRST_WARM, page_ms, "ms")
    rows.spread(case, "lanes", "first 2 MB room", first_ms, "ms")
    rows.spread(case, "lanes", "80th to 100th 2 MB room, p50", late_ms, "ms")
    rows.spread(case, "lanes", "after 5 s of silence", idle_ms, "ms")
    rows.spread(case, "lanes", "first / hundredth", ratios, "ratio")


def mixed_sizes(rows: Rows, case: str, path: NetworkPath, repeats: int) -> None:
    """64 rooms at once: 56 small and 8 large; as many small ones alone for comparison."""
    sizes = [size for _ in range(8) for size in (LARGE, *[SMALL] * 7)]
    names = ("56 small rooms alone", "56 small rooms among 8 large")
    took: dict[str, list[list[float]]] = {name: [] for name in names}
    everything_ms = []
    for _ in range(repeats):
        send, receive = lanes_pair(path.namespaces, path.hosts, CONFIG)
        with closing(send), closing(receive):
            time.sleep(1.0)
            receive.ask("rooms", sizes=[SMALL] * 56)
            alone_s = checked(receive.ask("rooms", sizes=[SMALL] * 56))["took_s"]
            mixed_s = checked(receive.ask("rooms", sizes=sizes))["took_s"]
        small_s = [t for t, size in zip(mixed_s, sizes, strict=True) if size == SMALL]
        for name, values in zip(names, (alone_s, small_s), strict=True):
            took[name].append(values)
        everything_ms.append(1000 * max(mixed_s))
    for share, title in ((0.5, "p50"), (0.99, "p99")):
        middles = []
        for name, runs in took.items():
            values = [1000 * percentile(run, share) for run in runs]
            middles.append(rows.spread(case, "lanes", f"{name}, {title}", values, "ms"))
        rows.add(case, "lanes", f"{title}, among large / alone", middles[1] / middles[0], "ratio")
    rows.spread(case, "lanes", "all 64 rooms", everything_ms, "ms")


def beside_background(rows: Rows, case: str, path: NetworkPath, repeats: int) -> None:
    """Small rooms now and then, on a path that is idle or full of a background move."""
    took: dict[int, list[float]] = {0: [], LARGE: []}
    rates = []
    for _ in range(repeats):
        send, receive = lanes_pair(path.namespaces, path.hosts, CONFIG)
        with closing(send), closing(receive):
            time.sleep(1.0)
            for background_pages in took:
                ask = {"count": 40, "pages": SMALL, "gap_s": 0.35}
                got = checked(receive.ask("beside", background_pages=background_pages, **ask))
                took[background_pages] += got["took_s"]
        rates.append(got["bytes_per_s"] * 8 / 1e9)
    for share, title in ((0.5, "p50"), (0.99, "p99")):
        alone, beside = (1000 * percentile(values, share) for values in took.values())
        rows.add(case, "lanes", f"2 MB room alone, {title}", alone, "ms")
        rows.add(case, "lanes", f"2 MB room beside a background move, {title}", beside, "ms")
        rows.add(case, "lanes", f"{title}, beside / alone", beside / alone, "ratio")
    rows.spread(case, "lanes", "all together, with background", rates, "Gbit/s")


def submit_under_load(rows: Rows, case: str, path: NetworkPath, repeats: int) -> None:
    """How long the scheduler's thread is held by submit() while the lanes are full."""
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    held_ms: dict[str, list[float]] = {name: [] for name in shares}
    for _ in range(repeats):
        send, receive = lanes_pair(path.namespaces, path.hosts, {"lanes": 8})
        with closing(send), closing(receive):
            time.sleep(0.5)
            checked(receive.ask("steady", seconds=3, warm_s=0.5, pages=SMALL, at_once=24))
            took_s = send.ask("stats")["submit_s"]
        for name, share in shares.items():
            held_ms[name].append(1000 * percentile(took_s, share))
    for name, values in held_ms.items():
        rows.spread(case, "lanes", f"submit(), {name}", values, "ms")
