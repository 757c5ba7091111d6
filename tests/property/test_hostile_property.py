"""A few seconds of what `make fuzz` does for longer: peers that send anything."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

import hostile

from prfaas.wire import encode

BRIEF = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("run", [hostile.run_sender, hostile.run_receiver])
@BRIEF
@given(st.integers(0, 2**32), st.integers(1, 1500))
def test_no_peer_can_break_a_machine(run: Callable[[bytes], None], seed: int, size: int) -> None:
    run(random.Random(seed).randbytes(size))


@BRIEF
@given(st.binary(max_size=600))
def test_no_bytes_can_break_the_decoder(data: bytes) -> None:
    hostile.run_decoder(data)


@BRIEF
@given(st.integers(0, 2**32), st.integers(0, 200), st.integers(0, 255))
def test_no_damaged_frames_can_break_the_decoder(seed: int, at: int, value: int) -> None:
    source = hostile.Source(random.Random(seed).randbytes(400))
    frames = (hostile.frame_of(source) for _ in range(10))
    stream = bytearray(b"".join(encode(f) for f in frames if not isinstance(f, hostile.Foreign)))
    stream[at % len(stream)] = value
    # every cut is announced by a byte of its size
    cuts = [stream[i : i + 100] for i in range(0, len(stream), 100)]
    hostile.run_decoder(b"".join(bytes([len(cut) - 1]) + cut for cut in cuts))
