"""Encodings of payloads: what comes back, what is golden, and what a peer may not send."""

import json
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kv_bytes import bf16_bytes

from prfaas.errors import ProtocolError
from prfaas_transport.codec import WIDTHS, Codec, join, sample_of

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/encoded-payloads.json").read_text())


def decode(payload: bytes, plain_bytes: int, width: int) -> bytes:
    out = bytearray(plain_bytes)
    join(Codec().decode(memoryview(payload), plain_bytes, width), memoryview(out))
    return bytes(out)


@pytest.mark.parametrize("vector", VECTORS["golden"], ids=lambda v: v["what"])
def test_golden_payloads_decode(vector: dict[str, Any]) -> None:
    """Only this way round: another release of the library may encode otherwise."""
    plain = bytes.fromhex(vector["plain"])
    payload = bytes.fromhex(vector["payload"])
    assert decode(payload, len(plain), vector["encoding"]) == plain


@pytest.mark.parametrize("vector", VECTORS["malformed"], ids=lambda v: v["what"])
def test_a_malformed_payload_is_a_protocol_error_and_takes_no_memory(
    vector: dict[str, Any],
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=vector["error"]):
            decode(bytes.fromhex(vector["payload"]), vector["plain_bytes"], vector["encoding"])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(
    data=st.binary(min_size=1, max_size=600),
    repeats=st.integers(1, 40),
    width=st.sampled_from(WIDTHS),
    cuts=st.lists(st.integers(0, 2000), max_size=4),
)
def test_whatever_is_encoded_comes_back(
    data: bytes, repeats: int, width: int, cuts: list[int]
) -> None:
    data = data * repeats
    data += bytes(-len(data) % width)
    places = sorted({min(cut * width, len(data)) for cut in cuts} | {0, len(data)})
    views = [memoryview(data)[start:end] for start, end in pairwise(places)]
    codec = Codec()
    parts = codec.encode(codec.split(views, width))
    if parts is None:
        return
    payload = b"".join(parts)
    assert len(payload) < len(data)
    assert decode(payload, len(data), width) == data


@given(st.binary(max_size=300), st.integers(1, 400), st.sampled_from(WIDTHS))
def test_no_bytes_of_a_peer_do_more_than_raise(
    payload: bytes, plain_bytes: int, width: int
) -> None:
    try:
        planes = Codec().decode(memoryview(payload), plain_bytes, width)
    except ProtocolError:
        return
    assert sum(map(len, planes)) == plain_bytes


@pytest.mark.parametrize(
    ("data", "width"),
    [
        (bf16_bytes(1 << 16), 2),
        (np.repeat(bf16_bytes(1 << 15).view(np.uint16), 2).view(np.uint8), 2),
        (np.random.default_rng(1).normal(size=1 << 14).astype("<f4").view(np.uint8), 4),
        (np.random.default_rng(1).integers(0, 256, 1 << 16, np.uint8), 1),
    ],
    ids=["bfloat16", "bfloat16, twice", "float32", "noise"],
)
def test_the_best_width_is_that_of_the_elements(data: Any, width: int) -> None:
    codec, sample = Codec(), sample_of([memoryview(data)])
    assert codec.best_width(sample, 1024) == width
    assert codec.best_width(sample, 1023) == 1


def test_numbers_like_those_of_a_kv_cache_shrink_by_a_third() -> None:
    data, codec = bf16_bytes(1 << 20), Codec()
    noise = np.random.default_rng(1).bytes(1 << 16)
    parts = codec.encode(codec.split([memoryview(data)], 2))
    assert parts is not None
    assert 1.4 < data.size / sum(map(len, parts)) < 1.55
    assert codec.encode(codec.split([memoryview(noise)], 2)) is None


def test_parts_stay_as_they_are_when_the_codec_goes_on() -> None:
    codec, first = Codec(), bf16_bytes(1 << 16, 1)
    parts = codec.encode(codec.split([memoryview(first)], 2))
    codec.encode(codec.split([memoryview(bf16_bytes(1 << 16, 2))], 2))
    assert parts is not None
    assert decode(b"".join(parts), first.size, 2) == first.tobytes()
