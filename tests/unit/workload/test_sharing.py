from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.workload import (
    Conversations,
    NoSharing,
    PrefixCache,
    Reuse,
    Sharing,
    SystemPrefixes,
    hits_in,
)

PREFIXES = SystemPrefixes((1000, 300, 50), zipf=1.0)
WAYS: dict[str, Sharing] = {
    "none": NoSharing(),
    "prefixes": PREFIXES,
    "conversations": Conversations(5.0, 20, 10_000),
    "both": Conversations(5.0, 20, 10_000, start=PREFIXES),
}
every = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
new_tokens = st.lists(st.integers(1, 3000), max_size=60).map(lambda drawn: np.array(drawn, int))


@every
@given(drawn=new_tokens, seed=st.integers(0, 2**32))
def test_chains_are_in_order_and_cover_the_prompts(
    way: Sharing, drawn: np.ndarray, seed: int
) -> None:
    shared = way.prompts(np.random.default_rng(seed), drawn)
    again = way.prompts(np.random.default_rng(seed), drawn)
    assert list(shared.chains) == list(again.chains)
    assert len(shared.chains) == len(shared.prompt_tokens) == len(drawn)
    covered: dict[int, tuple[int, ...]] = {}
    for chain, tokens in zip(shared.chains, shared.prompt_tokens, strict=True):
        ends = [end for _, end in chain]
        assert ends == sorted(set(ends))
        assert ends[-1] == tokens
        for index, (name, _) in enumerate(chain):
            # A hash names all that is before it.
            path = tuple(value for pair in chain[: index + 1] for value in pair)
            assert covered.setdefault(name, path) == path


@every
@given(drawn=new_tokens, seed=st.integers(0, 2**32))
def test_with_all_cached_only_new_tokens_are_left(
    way: Sharing, drawn: np.ndarray, seed: int
) -> None:
    shared = way.prompts(np.random.default_rng(seed), drawn)
    cache = PrefixCache(Reuse.PAGED)
    for name, tokens in enumerate(PREFIXES.tokens):
        cache.insert(((name, tokens),))
    left = hits_in(cache, shared.chains, shared.prompt_tokens).uncached_tokens
    assert np.array_equal(left, drawn)


def test_popularity_follows_zipf() -> None:
    shared = PREFIXES.prompts(np.random.default_rng(1), np.full(60_000, 10))
    counts = Counter(chain[0][0] for chain in shared.chains)
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.05)
    assert counts[0] / counts[2] == pytest.approx(3, rel=0.05)


def test_conversations_have_their_mean_of_turns_and_their_limit() -> None:
    way = Conversations(4.0, 50, 1 << 40)
    shared = way.prompts(np.random.default_rng(1), np.full(40_000, 10))
    firsts = sum(len(chain) == 1 for chain in shared.chains)
    assert 40_000 / firsts == pytest.approx(4, rel=0.05)
    short = Conversations(100, 50, 95).prompts(np.random.default_rng(1), np.full(4000, 10))
    assert short.prompt_tokens.max() == 90


def test_a_first_turn_may_be_longer_than_the_limit() -> None:
    shared = Conversations(2.0, 1, 5).prompts(np.random.default_rng(1), np.array([10, 10]))
    assert shared.prompt_tokens.tolist() == [10, 10]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: SystemPrefixes((), 1.0), "tokens"),
        (lambda: SystemPrefixes((0,), 1.0), "tokens"),
        (lambda: SystemPrefixes((1,), -1.0), "zipf"),
        (lambda: SystemPrefixes((1,), float("nan")), "zipf"),
        (lambda: Conversations(0.5, 1, 1), "mean_turns"),
        (lambda: Conversations(float("nan"), 1, 1), "mean_turns"),
        (lambda: Conversations(1000, 1, 1), "mean_turns"),
        (lambda: Conversations(2.0, 0, 1), "active"),
        (lambda: Conversations(2.0, 1, 0), "max_tokens"),
        (lambda: NoSharing().prompts(np.random.default_rng(1), np.array([0])), "new_tokens"),
    ],
)
def test_senseless_parameters_are_refused(make: object, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        make()  # type: ignore[operator]
