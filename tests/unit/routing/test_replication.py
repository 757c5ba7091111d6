"""When a prefix is moved, and when not."""

import random

import pytest

from prfaas.routing.ask_counts import AskCounts
from prfaas.routing.replication import Replication, ReplicationLimits, Verdict, Wanted
from prfaas.routing.snapshot import Bandwidth, LinkRule

ABUNDANT = LinkRule(Bandwidth.ABUNDANT)
MB = 1e6


def wanted(name: bytes = b"x", **changes: object) -> Wanted:
    """10,000 tokens that take 10 s to compute and 100 MB to move, over 100 MB/s."""
    values: dict[str, object] = {
        "gain_tokens": 10_000,
        "link": ABUNDANT,
        "available_bytes_per_s": 100 * MB,
        "tokens_per_s": 1000.0,
        "bytes_per_token": 10_000.0,
    }
    return Wanted(name, **(values | changes))  # type: ignore[arg-type]


def test_a_move_that_is_faster_than_the_prefill_is_waited_for() -> None:
    replication = Replication()
    assert replication.judge("a", wanted(), 0.0) is Verdict.WAIT
    assert replication.wait_s(wanted()) == replication.limits.longest_wait_s
    assert replication.wait_s(wanted(tokens_per_s=10_000.0)) == 0  # 1 s either way, and set-up


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"gain_tokens": 100}, Verdict.SHORT),
        ({"has_pools": False}, Verdict.NO_POOL),
        ({"link": LinkRule()}, Verdict.LINK),
        ({"link": LinkRule(Bandwidth.ABUNDANT, closed=True)}, Verdict.LINK),
        ({"available_bytes_per_s": 0.0}, Verdict.BUDGET),
        ({"tokens_per_s": 0.0}, Verdict.NOT_HOT),
        ({"tokens_per_s": 1e9}, Verdict.NOT_HOT),
    ],
)
def test_what_is_not_moved(changes: dict[str, object], verdict: Verdict) -> None:
    assert Replication().judge("a", wanted(**changes), 0.0) is verdict


def test_what_is_asked_for_often_is_replicated_though_it_pays_for_no_single_request() -> None:
    replication = Replication()
    cheap = wanted(tokens_per_s=1e6)
    verdicts = [replication.judge("a", cheap, at_s) for at_s in (0.0, 1.0, 2.0, 3.0)]
    assert verdicts == [Verdict.NOT_HOT, Verdict.NOT_HOT, Verdict.REPLICATE, Verdict.RECENT]
    other = wanted(b"y", tokens_per_s=1e6)
    assert replication.judge("a", other, 4.0) is Verdict.NOT_HOT


def test_what_is_asked_for_now_and_then_is_never_hot() -> None:
    replication = Replication()
    verdicts = {replication.judge("a", wanted(tokens_per_s=1e6), 90.0 * n) for n in range(50)}
    assert verdicts == {Verdict.NOT_HOT}


def test_a_link_that_is_scarce_moves_nothing_however_hot() -> None:
    replication = Replication()
    for at_s in range(20):
        assert replication.judge("a", wanted(link=LinkRule()), float(at_s)) is Verdict.LINK
    assert replication.judge("a", wanted(tokens_per_s=1e6), 20.0) is Verdict.REPLICATE


def test_moves_take_their_share_of_the_link_on_average() -> None:
    replication = Replication(ReplicationLimits(share=0.2, burst_s=10.0))
    moved, duration_s = 0, 1000
    for second in range(duration_s):
        name = second.to_bytes(4, "little")
        if replication.judge("a", wanted(name), float(second)) is Verdict.WAIT:
            moved += 1
            replication.note_moved("a", int(100 * MB))
    # 20 MB/s of 100, in moves of 100 MB, and the burst at the start.
    assert 0.9 * duration_s / 5 <= moved <= duration_s / 5 + 2 + 1
    # Another link has a budget of its own.
    assert replication.judge("c", wanted(b"z"), duration_s + 1.0) is Verdict.WAIT


def test_recent_moves_are_remembered_in_a_fixed_memory() -> None:
    replication = Replication(ReplicationLimits(max_recent=10, share=1e6))
    for number in range(1000):
        replication.judge("a", wanted(number.to_bytes(4, "little")), 0.0)
    assert len(replication._recent) == 10


def test_counts_are_never_too_low_and_seldom_too_high() -> None:
    counts = AskCounts(width=1 << 12)
    rng = random.Random(3)
    asked = [min(int(rng.paretovariate(0.8)), 5000) for _ in range(20_000)]
    true: dict[int, int] = {}
    for number in asked:
        true[number] = true.get(number, 0) + 1
        counts.add(number.to_bytes(4, "little"), 0.0)
    errors = [counts.count(n.to_bytes(4, "little"), 0.0) - count for n, count in true.items()]
    assert min(errors) >= 0
    assert max(errors) <= 2.72 * len(asked) / (1 << 12)


def test_counts_halve_with_time() -> None:
    counts = AskCounts(half_life_s=60.0)
    for _ in range(8):
        counts.add(b"x", 0.0)
    assert [counts.count(b"x", s) for s in (59.0, 60.0, 180.0, 1e9)] == pytest.approx([8, 4, 1, 0])
