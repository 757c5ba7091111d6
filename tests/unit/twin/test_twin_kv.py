"""What a twin's cache is: real sizes over the scale, and bytes that every token depends on."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.blocks import HashedPrompt
from prfaas.errors import ConfigError
from prfaas.profile.catalog import catalog_names, find_profile
from prfaas.transfer.layout import mismatch
from prfaas_twin.item_pool import ItemPool, items_of
from prfaas_twin.kv_content import Aux, KvContent, prompt_hash, seed_of, token_at
from prfaas_twin.kv_shape import KvShape
from prfaas_twin.scaling import Scaling

CURVE = find_profile("paper-1t-h20").kv_bytes
SHAPE = KvShape.of(CURVE, bytes_factor=1000, layers=8)
CONTENT = KvContent(SHAPE)


@pytest.mark.parametrize("name", catalog_names())
@pytest.mark.parametrize("scale", [10, 1000, 5000])
def test_sizes_are_the_profiles_over_the_scale(name: str, scale: float) -> None:
    curve = find_profile(name).kv_bytes
    shape = KvShape.of(curve, bytes_factor=scale, layers=8)
    for tokens in (1024, 3000, 8192, 32768, 131072):
        assert shape.prompt_bytes(tokens) * scale == pytest.approx(curve.at(tokens), rel=0.012)


@pytest.mark.parametrize("scale", [10, 100, 1000])
@pytest.mark.parametrize("dilation", [1, 5])
def test_scaling_keeps_every_ratio(scale: float, dilation: float) -> None:
    """Transfer to prefill, KV throughput to link rate: the same in the small as in the large."""
    profile, link = find_profile("paper-1t-h200"), 100e9 / 8
    scaling = Scaling(scale, dilation)
    shape = KvShape.of(profile.kv_bytes, bytes_factor=scale)
    for tokens in (1024, 32768, 131072):
        prefill_s = profile.prefill_s.at(tokens)
        real = profile.kv_bytes.at(tokens) / link / prefill_s
        small = shape.prompt_bytes(tokens) / scaling.rate(link) / scaling.wall_s(prefill_s)
        assert small == pytest.approx(real, rel=0.012)
        egress = shape.prompt_bytes(tokens) / scaling.wall_s(prefill_s) / scaling.rate(link)
        assert egress == pytest.approx(profile.kv_throughput(tokens) / link, rel=0.012)
    assert scaling.real_s(scaling.wall_s(3.0)) == pytest.approx(3.0)


def test_a_scale_that_makes_no_sense_is_refused() -> None:
    for scaling in ({"bytes_factor": 0.0}, {"time_factor": -1.0}, {"time_factor": float("nan")}):
        with pytest.raises(ConfigError, match="allowed"):
            Scaling(**scaling)
    with pytest.raises(ConfigError, match="layers"):
        KvShape.of(CURVE, layers=0)


def test_peers_of_another_profile_scale_or_depth_have_another_layout() -> None:
    here = SHAPE.layout(kv=1, state=1, aux=1)
    others = [
        KvShape.of(CURVE, bytes_factor=1001, layers=8),
        KvShape.of(CURVE, bytes_factor=1000, layers=9),
        KvShape.of(find_profile(catalog_names()[-1]).kv_bytes, bytes_factor=1000, layers=8),
    ]
    for other in others:
        there = other.layout(kv=1, state=1, aux=1)
        assert there.digest() != here.digest()
        assert mismatch(here, there.wire_groups())
    assert KvShape.of(CURVE, bytes_factor=1000).layout(kv=9, state=9, aux=9).digest() == (
        here.digest()
    )


def received(prompt: HashedPrompt, content: KvContent = CONTENT) -> list[np.ndarray]:
    """Return every layer as a decode has it that received it whole."""
    groups = content.arrays()
    rows = {"kv": content.kv_rows(prompt), content.shape.state_group: content.state_rows(prompt)}
    return [
        array.reshape(content.num_rows, -1)[rows[name]].reshape(-1).copy()
        for name, arrays in groups.items()
        for array in arrays
    ]


def views(parts: list[np.ndarray]) -> list[memoryview]:
    return [part.data for part in parts]


def tokens_of(seed: int) -> list[int]:
    return [token_at(seed, position, range(500)) for position in range(16)]


def test_tokens_follow_from_what_was_received() -> None:
    prompt = HashedPrompt.of(range(5000))
    assert seed_of(views(received(prompt)), prompt, prompt_hash(prompt)) == CONTENT.seed(prompt)
    assert tokens_of(CONTENT.seed(prompt)) == tokens_of(KvContent(SHAPE).seed(prompt))


def test_one_wrong_byte_anywhere_changes_the_tokens() -> None:
    prompt = HashedPrompt.of(range(3000))
    expected = tokens_of(CONTENT.seed(prompt))
    rng = random.Random(4)
    layers = len(received(prompt))
    for layer in range(layers):
        parts = received(prompt)
        parts[layer][rng.randrange(len(parts[layer]))] ^= 1 << rng.randrange(8)
        wrong = tokens_of(seed_of(views(parts), prompt, prompt_hash(prompt)))
        assert sum(a != b for a, b in zip(wrong, expected, strict=True)) >= 12
    stale = seed_of(views(received(prompt)), prompt, prompt_hash(HashedPrompt.of(range(2999))))
    assert tokens_of(stale) != expected


def test_layers_items_and_prompts_have_bytes_of_their_own() -> None:
    prompt, other = HashedPrompt.of(range(3000)), HashedPrompt.of([7, *range(1, 3000)])
    parts, others = received(prompt), received(other)
    swapped = [parts[1], parts[0], *parts[2:]]
    assert seed_of(views(swapped), prompt, prompt_hash(prompt)) != CONTENT.seed(prompt)
    assert all((a != b).mean() > 0.9 for a, b in zip(parts, others, strict=True))
    assert len({part.tobytes() for part in parts}) == len(parts)


def test_a_common_prefix_has_common_bytes_and_the_rest_has_not() -> None:
    short, long = HashedPrompt.of(range(4096)), HashedPrompt.of(range(9000))
    salted = HashedPrompt.of(range(9000), namespace="salt")
    items = SHAPE.kv_items(4096)
    assert (CONTENT.kv_rows(long)[:items] == CONTENT.kv_rows(short)).all()
    assert (CONTENT.kv_rows(long) != CONTENT.kv_rows(salted)).mean() > 0.9
    assert (CONTENT.state_rows(long) != CONTENT.state_rows(short)).any()


@given(st.integers(0, 1 << 17))
def test_items_grow_with_the_prompt(tokens: int) -> None:
    assert SHAPE.kv_items(tokens) <= SHAPE.kv_items(tokens + 1)
    assert (SHAPE.kv_items(tokens) == 0) == (tokens == 0)


def test_aux_rows_come_back() -> None:
    aux = Aux(prompt_hash=(1 << 64) - 1, cached_tokens=5, prompt_tokens=9)
    assert Aux.unpack(aux.pack()) == aux


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=60))
def test_a_pool_never_gives_an_item_twice_and_loses_none(steps: list[tuple[bool, int]]) -> None:
    pool = ItemPool(64)
    held: list = []
    for takes, number in steps:
        if takes:
            runs = pool.take(number)
            assert (runs is None) == (number > 64 - sum(len(items_of(r)) for r in held))
            if runs is not None:
                assert len(items_of(runs)) == number
                held.append(runs)
        elif held:
            pool.give_back(held.pop(number % len(held)))
        taken = [item for runs in held for item in items_of(runs).tolist()]
        assert len(set(taken)) == len(taken) == 64 - pool.num_free
    for runs in held:
        pool.give_back(runs)
    assert pool.take(64) == ((0, 64),)
