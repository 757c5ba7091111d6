"""Workloads: the same seed gives the same, streams are apart, bad values are named."""

import math

import numpy as np
import pytest

from prfaas.errors import ConfigError
from prfaas.sim.generate import ConstantOutput, GeometricOutput, Outputs, generate, replay
from prfaas.sim.scenario import Workload
from prfaas.workload import (
    Arrivals,
    GammaBursts,
    Poisson,
    SystemPrefixes,
    Trace,
    TruncatedLogNormal,
    parse_trace,
)

LENGTHS = TruncatedLogNormal(9.9, 1.0, 128, 131072)
TRACE = """\
{"prfaas_trace": 1, "block_tokens": 512}
{"arrival_s": 0.0, "prompt_tokens": 1100, "output_tokens": 52, "blocks": [46, 47, 2353]}
{"arrival_s": 2.0, "prompt_tokens": 1024, "output_tokens": 0, "blocks": [46, 47]}
{"arrival_s": 3.0, "prompt_tokens": 600, "output_tokens": 7, "blocks": [46, 9]}
"""


def made(
    *,
    arrivals: Arrivals | None = None,
    outputs: Outputs | None = None,
    count: int = 500,
    seed: int = 1,
) -> Workload:
    return generate(
        LENGTHS, arrivals or Poisson(2.0), outputs or ConstantOutput(8), count=count, seed=seed
    )


def recorded() -> Trace:
    return parse_trace(TRACE, "trace")


def test_the_same_seed_gives_the_same_and_another_does_not() -> None:
    first, again, other = made(seed=7), made(seed=7), made(seed=8)
    assert np.array_equal(first.arrival_s, again.arrival_s)
    assert np.array_equal(first.prompt_tokens, again.prompt_tokens)
    assert not np.array_equal(first.arrival_s, other.arrival_s)
    assert not np.array_equal(first.prompt_tokens, other.prompt_tokens)


def test_what_is_asked_does_not_depend_on_when() -> None:
    poisson = made(outputs=GeometricOutput(50))
    bursts = made(outputs=GeometricOutput(50), arrivals=GammaBursts(9.0, 3.0))
    assert np.array_equal(poisson.prompt_tokens, bursts.prompt_tokens)
    assert np.array_equal(poisson.output_tokens, bursts.output_tokens)


def test_another_rate_is_the_same_arrivals_faster() -> None:
    slow, fast = made(arrivals=Poisson(1.0)), made(arrivals=Poisson(4.0))
    assert slow.arrival_s == pytest.approx(4 * fast.arrival_s)


def test_outputs() -> None:
    assert set(made(outputs=ConstantOutput(1024.0)).output_tokens.tolist()) == {1024}
    drawn = made(outputs=GeometricOutput(100), count=20_000).output_tokens
    assert drawn.min() == 1
    assert drawn.mean() == pytest.approx(100, rel=0.03)


def test_sharing_puts_chains_in() -> None:
    shared = generate(
        LENGTHS,
        Poisson(2.0),
        ConstantOutput(8),
        count=20,
        seed=1,
        sharing=SystemPrefixes((300,), zipf=1.0),
    )
    assert np.array_equal(shared.prompt_tokens, made(count=20).prompt_tokens + 300)
    assert all(chain[0] == (0, 300) for chain in shared.chains)


def test_a_trace_is_replayed_with_its_chains() -> None:
    workload = replay(recorded(), speed=2.0)
    assert workload.arrival_s.tolist() == [0.0, 1.0, 1.5]
    assert workload.output_tokens.tolist() == [52, 1, 7]  # a request has one at least
    assert workload.chains[1] == ((46, 512), (47, 1024))
    assert replay(recorded(), chains=False).chains == ()
    assert len(replay(recorded(), count=2).arrival_s) == 2


@pytest.mark.parametrize("tokens", [0.0, -4.0, math.nan, math.inf])
@pytest.mark.parametrize("kind", [ConstantOutput, GeometricOutput])
def test_impossible_outputs_are_refused_by_name(
    kind: type[ConstantOutput] | type[GeometricOutput], tokens: float
) -> None:
    with pytest.raises(ConfigError, match=f"output_tokens = {tokens}"):
        kind(tokens)


def test_what_is_out_of_range_is_named() -> None:
    with pytest.raises(ConfigError, match="requests = 0"):
        made(count=0)
    with pytest.raises(ConfigError, match="seed = -1"):
        made(seed=-1)
    with pytest.raises(ConfigError, match="requests = 4: the trace has 3"):
        replay(recorded(), count=4)
    with pytest.raises(ConfigError, match="speed: -1"):
        replay(recorded(), speed=-1)
