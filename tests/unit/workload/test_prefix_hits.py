import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.workload import (
    Chain,
    PrefixCache,
    Reuse,
    Trace,
    hits_in,
    mean_of,
    parse_trace,
    prefix_hits,
)


def recorded(*prompts: tuple[int, list[int]]) -> Trace:
    """Return a trace of prompts given by length and blocks of 10 tokens."""
    rows: list[dict[str, object]] = [{"prfaas_trace": 1, "block_tokens": 10}]
    for at, (tokens, blocks) in enumerate(prompts):
        rows.append(
            {"arrival_s": at, "prompt_tokens": tokens, "output_tokens": 1, "blocks": blocks}
        )
    return parse_trace("\n".join(map(json.dumps, rows)), "recorded")


def uncached(trace: Trace, reuse: Reuse, **bounds: int) -> list[int]:
    return prefix_hits(trace, reuse, **bounds).uncached_tokens.tolist()


CONVERSATION = recorded(
    (25, [1, 2]),
    (45, [1, 2, 3, 4]),
    (38, [1, 2, 5]),
    (49, [1, 2, 5, 6]),
    (19, [1]),
)


def test_paged_takes_up_at_any_block() -> None:
    assert uncached(CONVERSATION, Reuse.PAGED) == [25, 25, 18, 19, 9]


def test_hybrid_takes_up_only_where_a_prompt_ended() -> None:
    branch = recorded((45, [1, 2, 3, 4]), (38, [1, 2, 5]), (49, [1, 2, 3, 4]), (45, [1, 2, 5, 6]))
    assert uncached(branch, Reuse.PAGED) == [45, 18, 9, 15]
    assert uncached(branch, Reuse.HYBRID) == [45, 38, 9, 15]
    assert uncached(CONVERSATION, Reuse.HYBRID) == [25, 25, 18, 19, 19]


def test_one_token_is_always_computed() -> None:
    same = recorded((20, [1, 2]), (20, [1, 2]), (21, [1, 2]))
    assert uncached(same, Reuse.PAGED) == [20, 10, 1]
    assert uncached(same, Reuse.HYBRID) == [20, 20, 1]


def test_a_block_that_is_not_full_is_not_reused() -> None:
    partial = recorded((15, [1, 2]), (15, [1, 2]))
    assert uncached(partial, Reuse.PAGED) == [15, 5]


def test_the_least_recently_used_leaves_first_and_tails_before_heads() -> None:
    trace = recorded((21, [1, 2]), (21, [3, 4]), (21, [1, 2]), (21, [3, 4]))
    assert uncached(trace, Reuse.PAGED, capacity_blocks=4) == [21, 21, 1, 1]
    # Three blocks: of the first prompt the tail left, of the second its tail in turn.
    assert uncached(trace, Reuse.PAGED, capacity_blocks=3) == [21, 21, 11, 11]
    assert uncached(trace, Reuse.PAGED, capacity_blocks=1) == [21, 21, 21, 21]
    assert uncached(trace, Reuse.PAGED, capacity_blocks=0) == [21, 21, 21, 21]


def test_a_kept_state_takes_room_and_leaves_with_its_block() -> None:
    trace = recorded((21, [1, 2]), (21, [3, 4]), (21, [1, 2]))
    assert uncached(trace, Reuse.HYBRID, capacity_blocks=4) == [21, 21, 1]
    assert uncached(trace, Reuse.HYBRID, capacity_blocks=8, state_blocks=2) == [21, 21, 1]
    assert uncached(trace, Reuse.HYBRID, capacity_blocks=7, state_blocks=2) == [21, 21, 21]


def test_the_hit_rate_is_of_tokens() -> None:
    hits = prefix_hits(CONVERSATION, Reuse.PAGED)
    assert hits.hit_rate == pytest.approx(1 - 96 / 176)
    assert mean_of(hits.lengths) == pytest.approx(96 / 5)


chains = st.lists(
    st.lists(st.integers(0, 3), max_size=5).map(
        # A hash stands for its block and all before it.
        lambda steps: tuple(
            (hash(tuple(steps[: end + 1])), 10 * (end + 1)) for end in range(len(steps))
        )
    ),
    min_size=1,
    max_size=40,
)


def uncached_of(cache: PrefixCache, drawn: list[Chain]) -> np.ndarray:
    lengths = np.array([len(chain) * 10 + 1 for chain in drawn])
    return hits_in(cache, drawn, lengths).uncached_tokens


@given(chains, st.integers(0, 30))
def test_more_room_never_misses_more(drawn: list[Chain], blocks: int) -> None:
    less, more, unbounded = (
        uncached_of(PrefixCache(Reuse.PAGED, capacity_tokens=capacity), drawn)
        for capacity in (blocks * 10, blocks * 10 + 10, None)
    )
    assert np.all(less >= more)
    assert np.all(more >= unbounded)


@given(chains, st.one_of(st.none(), st.integers(0, 300)))
def test_hybrid_never_hits_more_than_paged(drawn: list[Chain], capacity: int | None) -> None:
    paged, hybrid = (
        uncached_of(PrefixCache(reuse, capacity_tokens=capacity), drawn) for reuse in Reuse
    )
    assert np.all(hybrid >= paged)
    assert np.all(paged >= 1)


@given(chains, st.sampled_from(Reuse), st.integers(0, 300), st.integers(0, 40))
def test_whole_prefixes_are_held_within_the_capacity(
    drawn: list[Chain], reuse: Reuse, capacity: int, state: int
) -> None:
    cache = PrefixCache(reuse, capacity_tokens=capacity, state_tokens=state)
    names = {name for chain in drawn for name, _ in chain}
    for chain in drawn:
        cache.insert(chain)
        assert cache.used_tokens <= capacity
    for chain in drawn:
        held = [name in cache._sizes for name, _ in chain]
        assert held == sorted(held, reverse=True)
    kept = len(cache._reusable) * state if reuse is Reuse.HYBRID else 0
    assert cache.used_tokens == sum(cache._sizes.values()) + kept
    assert cache._reusable <= set(cache._sizes) <= names


@given(chains)
def test_an_unbounded_paged_cache_hits_the_longest_known_prefix(drawn: list[Chain]) -> None:
    known: set[int] = set()
    for chain, left in zip(drawn, uncached_of(PrefixCache(Reuse.PAGED), drawn), strict=True):
        hit = max((tokens for name, tokens in chain if name in known), default=0)
        assert left == len(chain) * 10 + 1 - hit
        known |= {name for name, _ in chain}


def test_senseless_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="capacity_tokens"):
        PrefixCache(Reuse.PAGED, capacity_tokens=-1)
    with pytest.raises(ConfigError, match="state_tokens"):
        PrefixCache(Reuse.PAGED, state_tokens=-1)
