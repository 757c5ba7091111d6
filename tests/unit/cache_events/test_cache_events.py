import json
from typing import Any

import pytest

from prfaas.cache_events import (
    Batch,
    BlockRemoved,
    BlockStored,
    CacheEvent,
    CacheMirror,
    CacheShape,
    Cleared,
    Cursor,
    EventLog,
    StateRemoved,
    StateStored,
    WindowRemoved,
    WindowStored,
    decode_batch,
    decode_cursor,
    decode_shape,
    encode_batch,
    encode_cursor,
    encode_shape,
)
from prfaas.cache_events.log import MAX_NAMES
from prfaas.errors import ProtocolError

DENSE = CacheShape()
HYBRID = CacheShape(stateful=True)
WINDOWED = CacheShape(window_tokens=3)
PROMPT = tuple(range(100, 110))


def stored(names: range, *, parent: int | None = None, salt: str = "") -> BlockStored:
    """Return blocks of one token each: block n holds token 99 + n of PROMPT."""
    return BlockStored(tuple(names), tuple(99 + name for name in names), parent, salt)


def mirror(shape: CacheShape, *events: CacheEvent) -> CacheMirror:
    made = CacheMirror(shape)
    for event in events:
        made.apply(event)
    return made


def test_a_dense_cache_reuses_what_is_stored_but_for_the_last_token() -> None:
    assert mirror(DENSE).reusable_tokens(PROMPT) == 0
    assert mirror(DENSE, stored(range(1, 6))).reusable_tokens(PROMPT) == 5
    assert mirror(DENSE, stored(range(1, 11))).reusable_tokens(PROMPT) == 9
    assert mirror(DENSE, stored(range(1, 6))).reusable_tokens([*PROMPT[:3], 7, 8]) == 3
    removed = mirror(DENSE, stored(range(1, 6)), BlockRemoved((4, 5)), BlockRemoved((77,)))
    assert removed.reusable_tokens(PROMPT) == 3
    assert mirror(DENSE, stored(range(1, 6)), Cleared()).reusable_tokens(PROMPT) == 0


def test_pages_are_reused_whole() -> None:
    pages = mirror(CacheShape(block_tokens=4), BlockStored((1, 2), PROMPT[:8]))
    assert pages.reusable_tokens(PROMPT) == 8
    assert pages.reusable_tokens(PROMPT[:8]) == 4


def test_caches_with_a_salt_are_kept_apart() -> None:
    salted = mirror(DENSE, stored(range(1, 6), salt="tenant"))
    assert salted.reusable_tokens(PROMPT) == 0
    assert salted.reusable_tokens(PROMPT, salt="tenant") == 5


def test_a_hybrid_cache_reuses_only_up_to_a_state() -> None:
    blocks = stored(range(1, 9))
    assert mirror(HYBRID, blocks).reusable_tokens(PROMPT) == 0
    with_states = mirror(HYBRID, blocks, StateStored((4, 7)))
    assert with_states.reusable_tokens(PROMPT) == 7
    assert with_states.reusable_tokens([*PROMPT[:6], 1, 2]) == 4
    with_states.apply(StateRemoved((7,)))
    assert with_states.reusable_tokens(PROMPT) == 4
    with_states.apply(BlockRemoved((4,)))
    assert with_states.reusable_tokens(PROMPT) == 0


def test_a_window_must_be_whole_before_the_place_that_is_reused() -> None:
    cache = mirror(WINDOWED, stored(range(1, 9)))
    assert cache.reusable_tokens(PROMPT) == 8
    cache.apply(WindowRemoved((2, 5)))
    # After the gap at 5 the three of 6 to 8 are enough, and no fewer.
    assert cache.reusable_tokens(PROMPT) == 8
    assert cache.reusable_tokens([*PROMPT[:7], 1, 2]) == 1
    cache.apply(WindowStored((5,)))
    assert cache.reusable_tokens([*PROMPT[:7], 1, 2]) == 7
    # Blocks that are stored again come with their window.
    cache.apply(BlockRemoved((2,)))
    cache.apply(BlockStored((2,), (101,), 1))
    assert cache.reusable_tokens(PROMPT[:4]) == 3


def events_of_every_kind() -> list[CacheEvent]:
    return [
        stored(range(1, 9)),
        stored(range(20, 22), parent=3, salt="s"),
        StateStored((4, 7)),
        StateRemoved((7,)),
        WindowRemoved((2, 3)),
        WindowStored((3,)),
        BlockRemoved((8,)),
    ]


def test_batches_survive_their_lines() -> None:
    events = (*events_of_every_kind(), Cleared())
    for batch in (Batch("s", 3, events), Batch("s", 9, events, snapshot=True, more=True)):
        line = encode_batch(batch)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert decode_batch(line) == batch
    assert decode_shape(encode_shape(WINDOWED)) == WINDOWED
    assert decode_cursor(encode_cursor(Cursor("s", 7))) == Cursor("s", 7)


GOOD = {"session": "s", "seq": 1, "events": [{"type": "StateStored", "hashes": [1]}]}


@pytest.mark.parametrize(
    "change",
    [
        {"session": 5},
        {"session": "x" * 65},
        {"seq": -1},
        {"seq": True},
        {"seq": 1.0},
        {"events": {}},
        {"events": [5]},
        {"events": [{"type": "Nothing"}]},
        {"events": [{"type": ["StateStored"], "hashes": []}]},
        {"events": [{"type": "StateStored"}]},
        {"events": [{"type": "StateStored", "hashes": ["1"]}]},
        {"events": [{"type": "StateStored", "hashes": [1 << 63]}]},
        {"events": [{"type": "BlockStored", "hashes": [], "tokens": []}]},
        {"events": [{"type": "BlockStored", "hashes": [1, 2], "tokens": [1, 2, 3]}]},
        {"events": [{"type": "BlockStored", "hashes": [1], "tokens": [-1]}]},
        {"events": [{"type": "BlockStored", "hashes": [1], "tokens": [1], "parent": "x"}]},
        {"events": [{"type": "BlockStored", "hashes": [1], "tokens": [1], "salt": 3}]},
        {"snapshot": 1},
    ],
)
def test_a_line_that_is_no_batch_is_refused(change: dict[str, Any]) -> None:
    assert decode_batch(json.dumps(GOOD).encode())
    with pytest.raises(ProtocolError, match="cache events"):
        decode_batch(json.dumps(GOOD | change).encode())


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b" " * (5 << 20)])
def test_a_line_that_is_no_json_object_is_refused(line: bytes) -> None:
    for decode in (decode_batch, decode_shape, decode_cursor):
        with pytest.raises(ProtocolError, match="cache events"):
            decode(line)


def test_another_version_is_refused() -> None:
    with pytest.raises(ProtocolError, match="version 2, not 1"):
        decode_shape(b'{"version": 2, "stateful": true, "block_tokens": 1, "window_tokens": 0}')


def test_a_reader_gets_what_it_missed_or_a_snapshot() -> None:
    log = EventLog("s", HYBRID, kept_items=20)
    assert log.since(Cursor("s", 0)) == []
    log.append(events_of_every_kind()[:1])
    log.append([])
    log.append(events_of_every_kind()[2:4])
    assert log.seq == 2
    missed = log.since(Cursor("s", 1))
    assert missed is not None
    assert [batch.seq for batch in missed] == [2]
    assert log.since(Cursor("s", 2)) == []
    for stranger in (Cursor(), Cursor("other", 1), Cursor("s", 3)):
        assert log.since(stranger) is None
    log.append([stored(range(30, 45))])
    # The first batch is not kept any more.
    assert log.since(Cursor("s", 0)) is None


def test_a_snapshot_makes_an_equal_cache() -> None:
    for shape in (DENSE, HYBRID, WINDOWED):
        log = EventLog("s", shape)
        log.append(events_of_every_kind())
        copy = CacheMirror(shape)
        copy.apply(stored(range(500, 510)))
        batches = log.snapshot()
        assert [batch.more for batch in batches] == [False]
        for batch in batches:
            assert (batch.seq, batch.snapshot) == (log.seq, True)
            for event in decode_batch(encode_batch(batch)).events:
                copy.apply(event)
        for prompt in (PROMPT, [*PROMPT[:6], 1, 2]):
            for salt in ("", "s"):
                expected = log.mirror.reusable_tokens(prompt, salt=salt)
                assert copy.reusable_tokens(prompt, salt=salt) == expected
        assert (copy.num_blocks, copy.num_states) == (log.mirror.num_blocks, log.mirror.num_states)


def test_what_is_large_is_cut_into_batches_that_mean_the_same() -> None:
    count = 3 * MAX_NAMES + 5
    prompt = [number % 900 for number in range(count + 1)]
    log = EventLog("s", DENSE)
    log.append([BlockStored(tuple(range(count)), tuple(prompt[:count]))])
    for batches in (log.since(Cursor("s", 0)), log.snapshot()):
        assert batches is not None
        copy = CacheMirror(DENSE)
        for batch in batches:
            for event in batch.events:
                assert isinstance(event, Cleared) or len(event.hashes) <= MAX_NAMES
                copy.apply(event)
        assert copy.reusable_tokens(prompt) == count
