"""What a request costs in events, entries and bytes: counts that hold on any machine."""

import sys
import tracemalloc

import numpy as np
import pytest

from prfaas.planning.paper import paper_case
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.scenario import Deployment, Workload
from prfaas.sim.world import World
from prfaas.throughput import PdCluster, PrefillCluster

RATE_PER_S = 2.9


def paper_world(count: int, scale: int) -> World:
    """The paper's deployment times `scale`, at nine tenths of what it takes."""
    case = paper_case()
    remote = case.site.remotes[0]
    rng = np.random.default_rng(3)
    return World(
        Deployment(
            pd=PdCluster("pd", case.site.pd.profile, 3 * scale, 5 * scale),
            remotes=(PrefillCluster("far", remote.profile, 4 * scale, 12.5e9 * scale),),
            layers=57,
        ),
        Workload(
            np.cumsum(rng.exponential(1 / (RATE_PER_S * scale), count)),
            case.demand.lengths.sample(rng, count),
            np.full(count, 1024),
        ),
        ThresholdPolicy(19_400),
    )


@pytest.mark.parametrize("scale", [1, 100])
def test_a_request_takes_six_events_at_most_whatever_the_number_of_nodes(scale: int) -> None:
    world = paper_world(20_000, scale)
    assert world.run().answered.all()
    assert world.events.added <= 6 * 20_000


def test_a_request_takes_as_many_calls_at_ten_thousand_gpus_as_at_a_hundred() -> None:
    """Time grows by what a processor waits for memory; `make bench-sim` shows that."""
    calls = {}
    for scale in (1, 100):
        world = paper_world(5_000, scale)
        counted = [0]

        def count(_: object, event: str, __: object, counted: list[int] = counted) -> None:
            counted[0] += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            world.run()
        finally:
            sys.setprofile(None)
        calls[scale] = counted[0] / 5_000
    assert calls[100] == pytest.approx(calls[1], rel=0.05)


@pytest.mark.parametrize("scale", [1, 30])
def test_heaps_hold_a_few_entries_per_request_under_way(scale: int) -> None:
    world = paper_world(10_000, scale)
    under_way, queued, indexed, linked = [], [], [], []

    def look(_: None) -> None:
        under_way.append(world.arrived - world.ended)
        queued.append(len(world.events))
        pools = [world.decodes, *(region.pool for region in world.fleet.regions.values())]
        indexed.extend(len(pool._heap) / (3 * len(pool) + 64) for pool in pools)
        link = world.remotes["far"].egress
        assert link is not None
        linked.append(max(len(heap) for heap in (link._capped, link._shared, link._ends)))
        if world.ended < 10_000:
            world.events.at(world.events.now_s + 5.0, look)

    world.events.at(1.0, look)
    world.run()
    assert max(queued) <= 3 * max(under_way) + 100
    assert max(indexed) <= 1.1
    assert max(linked) <= 4 * max(under_way) + 256


def test_a_finished_request_leaves_its_row_and_no_more() -> None:
    """Measure the growth from 3,000 to 9,000 requests; a million must fit into a gibibyte."""
    peaks = []
    for count in (3_000, 9_000):
        tracemalloc.start()
        try:
            paper_world(count, 1).run()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 6_000 < 500
