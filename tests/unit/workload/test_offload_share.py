import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.profile import InstanceProfile, Origin, PolynomialCurve, table
from prfaas.workload import EmpiricalLengths
from prfaas.workload.offload_share import Route, offload_share, offload_share_of_local_hits


def instance(name: str, per_token_s: float) -> InstanceProfile:
    return InstanceProfile(
        name=name,
        model="m",
        hardware=name,
        gpus=1,
        prefill_s=PolynomialCurve((0.0, per_token_s)),
        kv_bytes=PolynomialCurve((500.0, 1.0)),
        decode=None,
        origin=Origin.ESTIMATED,
        source="made up",
    )


LOCAL, REMOTE = instance("slow", 4e-3), instance("fast", 1e-3)
#: Faster from 4e-3 l > 1e-3 l + (500 + l) / 1000 + 0.1, so from l > 300, not pipelined.
ROUTE = Route(LOCAL, REMOTE, link_bytes_per_s=1000.0, rtt_s=0.1)
LENGTHS = EmpiricalLengths([100, 300, 400, 1000])


def test_what_is_faster_offloaded() -> None:
    share = offload_share(LENGTHS, ROUTE)
    assert share.requests == pytest.approx(0.5)
    assert share.tokens == pytest.approx(1400 / 1800)
    assert share.from_tokens == 400
    gains = [(4e-3 - 1e-3 - 1e-3) * tokens - 0.6 for tokens in (400, 1000)]
    assert share.saved_s == pytest.approx(sum(gains) / 2)


def test_a_pipelined_transfer_hides_behind_the_prefill() -> None:
    route = Route(LOCAL, REMOTE, 1000.0, 0.1, pipelined=True)
    # max(1e-3 l, 0.5 + 1e-3 l) + 0.1 < 4e-3 l from l > 200.
    assert offload_share(LENGTHS, route).from_tokens == 300


def test_hits_that_only_local_has_cost_the_remote_a_whole_prefill() -> None:
    uncached, prompts = np.array([400, 1000]), np.array([400, 4000])
    share = offload_share_of_local_hits(uncached, prompts, ROUTE)
    assert share.requests == pytest.approx(0.5)
    # 1000 uncached take 4 s locally; of 4000 computed and 1000 sent the last arrives at 5.6 s.
    assert float(ROUTE.offload_s(np.array(4000.0), np.array(1000.0))) == pytest.approx(5.6)
    assert share.from_tokens is None


def test_a_table_is_not_believed_below_its_first_point() -> None:
    measured = replace(REMOTE, prefill_s=table([(200, 0.2), (400, 0.4)]))
    route = Route(LOCAL, measured, 1e12, 0.0)
    seconds = route.offload_s(np.array([1.0, 200.0, 400.0]), np.array([1.0, 200.0, 400.0]))
    assert seconds == pytest.approx([0.2, 0.2, 0.4])
    assert offload_share(EmpiricalLengths([40, 60]), route).from_tokens == 60


def test_nothing_is_faster_over_a_slow_link() -> None:
    share = offload_share(LENGTHS, Route(LOCAL, REMOTE, 1.0, 0.1))
    assert (share.requests, share.tokens, share.from_tokens, share.saved_s) == (0, 0, None, 0)


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=50),
    st.floats(1, 1e6),
    st.floats(0, 10),
    st.booleans(),
)
def test_a_better_link_never_makes_less_worth_offloading(
    tokens: list[int], rate: float, rtt_s: float, pipelined: bool
) -> None:
    lengths = EmpiricalLengths(tokens)
    worse = offload_share(lengths, Route(LOCAL, REMOTE, rate, rtt_s, pipelined))
    better = offload_share(lengths, Route(LOCAL, REMOTE, rate * 2, rtt_s / 2, pipelined))
    hiding = offload_share(lengths, Route(LOCAL, REMOTE, rate, rtt_s, pipelined=True))
    assert 0 <= worse.requests <= better.requests + 1e-12 <= 1 + 1e-9
    assert worse.tokens <= better.tokens + 1e-12
    assert worse.requests <= hiding.requests + 1e-12


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=50))
def test_without_hits_both_ways_of_counting_agree(tokens: list[int]) -> None:
    prompts = np.array(tokens)
    counted, seen = offload_share_of_local_hits(prompts, prompts, ROUTE), EmpiricalLengths(tokens)
    share = offload_share(seen, ROUTE)
    assert (counted.requests, counted.tokens) == pytest.approx((share.requests, share.tokens))
    assert counted.from_tokens == share.from_tokens


@pytest.mark.parametrize(("rate", "rtt_s"), [(0.0, 0.1), (math.nan, 0.1), (1.0, -1), (1, math.nan)])
def test_a_senseless_route_is_refused(rate: float, rtt_s: float) -> None:
    with pytest.raises(ConfigError, match=r"link_bytes_per_s|rtt_s"):
        Route(LOCAL, REMOTE, rate, rtt_s)


def test_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="of one length"):
        offload_share_of_local_hits(np.array([1]), np.array([1, 2]), ROUTE)
