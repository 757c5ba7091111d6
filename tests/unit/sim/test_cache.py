"""Prefix caches and their directory, alone and against `prfaas.workload.prefix_hits` on a trace."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prfaas.sim.cache import CacheDirectory, NodeCache
from prfaas.workload.chain import Chain
from prfaas.workload.prefix_hits import Reuse, prefix_hits
from prfaas.workload.trace import Trace
from prfaas.workload.trace_text import parse_trace

TRACE = Path(__file__).parents[3] / "loadtest/traces/mooncake_conversation.jsonl.gz"


def chain(*names: int, block: int = 100) -> Chain:
    return tuple((name, block * (index + 1)) for index, name in enumerate(names))


def make(tokens: float = 1e9, **options: object) -> NodeCache:
    return NodeCache(tokens, CacheDirectory(), **{"stateful": False, **options})  # type: ignore[arg-type]


def test_the_longest_kept_prefix_is_a_hit_but_never_the_whole_prompt() -> None:
    cache = make()
    cache.insert(chain(1, 2, 3))
    assert cache.lookup(chain(1, 2, 9), 300) == 200
    assert cache.lookup(chain(1, 2, 3), 301) == 300
    assert cache.lookup(chain(1, 2, 3), 300) == 200
    assert cache.lookup(chain(8, 9), 300) == 0


def test_the_least_recently_used_goes_first_and_tails_before_heads() -> None:
    cache = make(400)
    cache.insert(chain(1, 2))
    cache.insert(chain(3, 4))
    cache.insert(chain(1, 2))
    cache.insert(chain(5))
    assert cache.used_tokens == 400
    assert cache.lookup(chain(3, 4), 1000) == 100
    assert cache.lookup(chain(1, 2), 1000) == 200


def test_a_prompt_larger_than_the_cache_leaves_its_head() -> None:
    cache = make(250)
    cache.insert(chain(1, 2, 3, 4))
    assert cache.lookup(chain(1, 2, 3, 4), 1000) == 200


def test_states_are_kept_at_ends_and_checkpoints_only() -> None:
    cache = make(stateful=True)
    cache.insert(chain(1, 2, 3))
    assert cache.lookup(chain(1, 2, 9), 1000) == 0
    assert cache.lookup(chain(1, 2, 3, 4), 1000) == 300
    checkpointed = make(stateful=True, checkpoint_tokens=200)
    checkpointed.insert(chain(1, 2, 3))
    assert checkpointed.lookup(chain(1, 2, 9), 1000) == 200


def test_a_prefix_known_by_other_pieces_counts_once() -> None:
    cache = make()
    cache.insert(((2, 200),))
    cache.insert(((1, 100), (2, 200)))
    cache.lose_node()
    assert cache.used_tokens == 0


def test_a_dead_node_takes_its_part_of_a_common_cache() -> None:
    cache = make(nodes=4)
    for name in range(8):
        cache.insert(chain(name))
    cache.lose_node()
    assert cache.used_tokens == 600
    assert cache.lookup(chain(1), 1000) == 0
    assert cache.lookup(chain(2), 1000) == 100


def test_a_hidden_cache_is_used_and_not_found() -> None:
    directory = CacheDirectory()
    cache = NodeCache(1e9, directory, stateful=False)
    cache.insert(chain(1, 2))
    cache.hide()
    cache.insert(chain(1, 2, 3))
    assert directory.longest(chain(1, 2, 3), 1000)[0] == 0
    assert cache.lookup(chain(1, 2, 3), 1000) == 300
    cache.lose_node()
    assert cache.used_tokens == 0


BRANCHES = st.lists(st.integers(0, 2), min_size=0, max_size=6)
ACTIONS = st.lists(
    st.tuples(st.integers(0, 3), BRANCHES, st.sampled_from(["insert"] * 6 + ["lose", "hide"])),
    max_size=60,
)


def branch(turns: list[int]) -> Chain:
    """A path in a tree of prompts: a prefix is named by the turns that lead to it."""
    names = [int("1" + "".join(map(str, turns[: index + 1]))) for index in range(len(turns))]
    return chain(*names, block=64)


@given(ACTIONS, st.sampled_from([0, 200, 500, 1e9]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_directory_is_the_union_of_its_caches(
    actions: list[tuple[int, list[int], str]], tokens: float, stateful: bool
) -> None:
    directory = CacheDirectory()
    caches = [NodeCache(tokens, directory, stateful=stateful) for _ in range(4)]
    hidden = set()
    for index, turns, action in actions:
        if action == "insert":
            caches[index].insert(branch(turns))
        elif action == "lose":
            caches[index].lose_node()
        else:
            caches[index].hide()
            hidden.add(index)
    listed = [cache for index, cache in enumerate(caches) if index not in hidden]
    for cache in caches:
        assert cache.used_tokens <= tokens
        assert cache.used_tokens == sum(cache._sizes.values())
        assert cache._reusable <= set(cache._sizes)
    known = {prefix for cache in listed for prefix in cache._reusable}
    assert set(directory._holders) == known
    for prefix, holders in directory._holders.items():
        assert set(holders) == {cache for cache in listed if prefix in cache._reusable}
    for _, turns, _ in actions:
        tokens_found, holders = directory.longest(branch(turns), 10_000)
        matches = {cache: cache.lookup(branch(turns), 10_000) for cache in listed}
        assert tokens_found == max(matches.values(), default=0)
        if tokens_found:
            assert set(holders) == {c for c, hit in matches.items() if hit == tokens_found}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return parse_trace(gzip.decompress(TRACE.read_bytes()).decode(), TRACE.name)


@pytest.mark.parametrize("reuse", list(Reuse))
@pytest.mark.parametrize("capacity_blocks", [None, 50_000, 5_000, 100])
def test_hits_on_a_real_trace_are_those_of_prefix_hits(
    trace: Trace, reuse: Reuse, capacity_blocks: int | None
) -> None:
    expected = prefix_hits(trace, reuse, capacity_blocks=capacity_blocks)
    tokens = 1e18 if capacity_blocks is None else capacity_blocks * trace.block_tokens
    cache = make(tokens, stateful=reuse is Reuse.HYBRID)
    uncached = []
    for prompt_chain, prompt_tokens in zip(
        trace.chains(), trace.prompt_tokens.tolist(), strict=True
    ):
        uncached.append(prompt_tokens - cache.lookup(prompt_chain, prompt_tokens))
        cache.insert(prompt_chain)
    assert np.array_equal(uncached, expected.uncached_tokens)
