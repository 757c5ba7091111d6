"""Layouts, intervals, reasons, liveness, bounded memory."""

import numpy as np
import pytest

from prfaas.errors import ConfigError, TransferError
from prfaas.transfer.intervals import IntervalSet
from prfaas.transfer.layout import Entry, Group, Layout, mismatch
from prfaas.transfer.liveness import Liveness
from prfaas.transfer.memo import Memo
from prfaas.transfer.reasons import reason_text, reason_word


def layout(*sizes: int, items: int = 8) -> Layout:
    return Layout((Group("kv", tuple(Entry(size, items) for size in sizes)),))


def test_digest_covers_names_and_item_sizes_only() -> None:
    one = layout(64, 64)
    assert one.digest() == layout(64, 64, items=99).digest()
    assert one.digest() != layout(64, 32).digest()
    assert one.digest() != Layout((Group("state.0.mamba", one.groups[0].entries),)).digest()
    assert len(one.digest()) == 32


def test_layout_json_round_trip() -> None:
    one = Layout((Group("kv", (Entry(64, 8),)), Group("aux", (Entry(5, 2), Entry(7, 2)))))
    assert Layout.from_json(one.to_json()) == one
    with pytest.raises(ConfigError):
        Layout.from_json({"groups": [{"name": "kv"}]})


@pytest.mark.parametrize(
    "groups",
    [
        (),
        (Group("kv", ()),),
        (Group("", (Entry(1, 1),)),),
        (Group("x" * 65, (Entry(1, 1),)),),
        (Group("kv", (Entry(0, 1),)),),
        (Group("kv", (Entry(1, 0),)),),
        (Group("kv", (Entry(1, 1),)), Group("kv", (Entry(1, 1),))),
        (Group("kv", (Entry(1, 1),) * 8193),),
    ],
)
def test_layout_outside_the_limits_is_refused(groups: tuple[Group, ...]) -> None:
    with pytest.raises(ConfigError):
        Layout(groups)


def test_items_are_checked_and_copied() -> None:
    one = layout(64)
    mine = np.array([1, 2], dtype=np.int64)
    copy = one.items(0, mine)
    mine[0] = 7
    assert copy.tolist() == [1, 2]
    for bad in ([-1], [8], [[1], [2]]):
        with pytest.raises(TransferError):
            one.items(0, np.array(bad))


def test_mismatch_names_the_difference() -> None:
    one = layout(64, 64)
    assert "2 entries here, 1 there" in mismatch(one, layout(64).wire_groups())
    assert "kv[1]: items of 64 bytes here, 32 there" in mismatch(one, layout(64, 32).wire_groups())
    assert "1 groups here, 0 there" in mismatch(one, ())


def test_intervals_merge_and_count() -> None:
    held = IntervalSet()
    assert [held.add(0, 2), held.add(4, 6), held.add(1, 5), held.add(0, 6)] == [2, 2, 2, 0]
    assert len(held) == 6
    assert held.covers(0, 6)
    assert not held.covers(0, 7)
    assert held.covers(3, 3)
    assert held.add(6, 6) == 0


def test_reason_words_fit_the_wire() -> None:
    assert reason_word("") == "aborted"
    assert reason_word("Größe: zu viel!") == "gr_e_zu_viel_"
    assert len(reason_word("x" * 100)) == 64
    assert len(reason_text("€" * 4000).encode()) <= 1024


def test_liveness_pings_when_silent_and_says_who_is_silent_stalled_and_stuck() -> None:
    lane = Liveness(2.0, now=0.0)
    assert not lane.wants_ping(0.4)
    assert lane.wants_ping(0.5)
    lane.pinged(0.5)
    assert not lane.wants_ping(0.9)
    assert not lane.is_stalled(0.7, 0.02)
    lane.pinged(0.75)
    assert lane.is_stalled(0.8, 0.02)
    assert not lane.is_silent(1.9)
    assert lane.is_silent(1.9, within_s=0.1)
    assert not lane.is_stuck(5.9)
    assert lane.is_stuck(6.0)
    lane.heard(5.9)
    lane.ponged(5.9)
    assert lane.rtt_s == 5.9 - 0.75
    assert not lane.is_stalled(9.0, 0.02)
    assert not lane.is_silent(7.8)


def test_a_long_period_still_pings_and_a_long_path_is_not_stalled() -> None:
    lane = Liveness(3600.0, now=0.0)
    assert lane.wants_ping(0.5)
    lane.pinged(1.0)
    assert not lane.is_stalled(1.9, 0.5)
    assert lane.is_stalled(2.0, 0.5)


def test_memo_drops_the_oldest() -> None:
    memo: Memo[int, str] = Memo(2)
    for key in (1, 2, 3):
        memo.put(key, str(key))
    assert [memo.get(key) for key in (1, 2, 3)] == [None, "2", "3"]
    memo.drop(2)
    memo.drop(2)
    assert memo.get(2) is None
