import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.blocks import BLOCK_TOKENS, HashedPrompt, PrefixIndex


def prompt(length: int, *, fork_at: int | None = None, namespace: str = "") -> HashedPrompt:
    """Return tokens 0, 1, 2, ...; from `fork_at` on others."""
    tokens = [
        index if fork_at is None or index < fork_at else index + 100_000 for index in range(length)
    ]
    return HashedPrompt.of(tokens, namespace=namespace)


def test_hashes_are_the_same_in_every_process() -> None:
    """Golden values: gateways of different versions and machines must agree."""
    assert prompt(130).block_hashes == (7183429981580064968, 1588078885320569853)


def test_hashes_cover_namespace_and_all_tokens_before() -> None:
    base = prompt(256)
    assert prompt(256, namespace="salt").block_hashes[0] != base.block_hashes[0]
    forked = prompt(256, fork_at=127)
    assert forked.block_hashes[0] == base.block_hashes[0]
    assert not set(forked.block_hashes[1:]) & set(base.block_hashes)


def test_paged_model_reuses_whole_blocks_and_at_most_all_but_one() -> None:
    index = PrefixIndex()
    assert index.match(prompt(300)) == 0
    index.insert(prompt(300))
    assert index.match(prompt(300)) == 256
    assert index.match(prompt(1000)) == 256
    assert index.match(prompt(300, fork_at=130)) == 128
    assert index.match(prompt(300, fork_at=10)) == 0
    index.insert(prompt(320))
    assert index.match(prompt(320)) == 319


def test_a_hit_is_a_multiple_of_the_page() -> None:
    index = PrefixIndex(page_tokens=100)
    index.insert(prompt(300))
    assert index.match(prompt(400)) == 200
    whole = PrefixIndex(page_tokens=64)
    whole.insert(prompt(128))
    assert whole.match(prompt(128)) == 64


def test_stateful_model_as_measured() -> None:
    """333 tokens in chunks of 256: checkpoints at 256 and 333."""
    index = PrefixIndex(stateful=True, checkpoint_tokens=256)
    index.insert(prompt(333))
    assert index.match(prompt(333)) == 256
    assert index.match(prompt(333, fork_at=100)) == 0
    assert index.match(prompt(333, fork_at=256)) == 256
    assert index.match(prompt(333, fork_at=320)) == 256
    assert index.match(prompt(360)) == 333
    assert index.match(prompt(334)) == 333
    assert index.match(prompt(360, fork_at=333)) == 333
    assert index.match(prompt(360, fork_at=332)) == 256


def test_stateful_model_without_chunks_reuses_only_prompt_ends() -> None:
    index = PrefixIndex(stateful=True)
    index.insert(prompt(1000))
    assert index.match(prompt(1000)) == 0
    assert index.match(prompt(1001)) == 1000


def test_stateful_short_prompts_count_too() -> None:
    index = PrefixIndex(stateful=True)
    index.insert(prompt(10))
    assert index.match(prompt(30)) == 10
    assert index.match(prompt(10)) == 0
    assert index.match(prompt(30, fork_at=9)) == 0


def test_checkpoints_are_counted_from_what_was_reused() -> None:
    index = PrefixIndex(stateful=True, checkpoint_tokens=256)
    index.insert(prompt(100))
    index.insert(prompt(1000))  # reuses 100, so its chunks end at 356, 612, 868, 1000
    assert index.match(prompt(700)) == 612
    assert index.match(prompt(513)) == 356


def test_the_least_recently_used_blocks_go_first_tails_before_heads() -> None:
    index = PrefixIndex(max_blocks=6)
    index.insert(prompt(256))  # 4 blocks and the root
    index.insert(prompt(256, fork_at=128))  # 2 more: one block too many
    assert len(index) == 6
    assert index.match(prompt(257, fork_at=128)) == 256
    assert index.match(prompt(257)) == 192


def test_clear_forgets() -> None:
    index = PrefixIndex()
    index.insert(prompt(300))
    index.clear()
    assert (len(index), index.match(prompt(300))) == (0, 0)


@pytest.mark.parametrize("stateful", [False, True])
def test_an_empty_prompt_matches_nothing(stateful: bool) -> None:
    index = PrefixIndex(stateful=stateful)
    index.insert(HashedPrompt.of([]))
    assert index.match(HashedPrompt.of([])) == 0


def _common(left: list[int], right: list[int]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


@given(st.integers(0, 2**32), st.sampled_from([0, 50, 64, 100]))
def test_a_hit_never_exceeds_what_a_full_memory_of_prompts_allows(seed: int, step: int) -> None:
    source = random.Random(seed)
    paged, stateful = PrefixIndex(), PrefixIndex(stateful=True, checkpoint_tokens=step)
    seen: list[list[int]] = []
    for _ in range(8):
        base = list(source.choice(seen)) if seen and source.random() < 0.7 else []
        base = base[: source.randint(0, len(base))]
        tokens = base + [source.randint(0, 3) for _ in range(source.randint(1, 200))]
        hashed = HashedPrompt.of(tokens)
        shared = max((_common(tokens, old) for old in seen), default=0)
        bound = min(shared, len(tokens) - 1)
        assert paged.match(hashed) == min(shared // BLOCK_TOKENS * BLOCK_TOKENS, len(tokens) - 1)
        assert stateful.match(hashed) <= bound
        ends = [len(old) for old in seen if old == tokens[: len(old)] and len(old) < len(tokens)]
        assert stateful.match(hashed) >= max(ends, default=0)
        paged.insert(hashed)
        stateful.insert(hashed)
        seen.append(tokens)
