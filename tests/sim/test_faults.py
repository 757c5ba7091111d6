"""One fault at a time: who takes over, how long it takes, and that things are as before after."""

import numpy as np
import pytest
from sim_rig import (
    EVERYTHING_LOCAL,
    NEVER,
    StalePolicy,
    check_run,
    deployment,
    linear,
    profile,
    workload,
)

from prfaas.errors import ConfigError
from prfaas.reasons import Reason, Route
from prfaas.records import NodeRecord, Role
from prfaas.routing import Bandwidth, Decision, LinkRule
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.record import Columns, Outcome
from prfaas.sim.scenario import CacheSpec, Deployment, Fault, FaultKind, Workload
from prfaas.sim.world import World


def run(
    place: Deployment,
    requests: Workload,
    *faults: Fault,
    threshold_tokens: int = EVERYTHING_LOCAL,
) -> Columns:
    world = World(place, requests, ThresholdPolicy(threshold_tokens), faults=faults)
    columns = world.run()
    check_run(world, columns)
    return columns


def kill(at_s: float, until_s: float, target: str) -> Fault:
    return Fault(at_s, until_s, FaultKind.KILL, target)


def test_a_dead_prefill_nodes_requests_go_to_others() -> None:
    columns = run(
        deployment(prefill=2), workload([0, 0, 0], 1000, 1), kill(0.5, NEVER, "pd-prefill-0")
    )
    assert columns.answered.all()
    assert sorted(columns.attempts.tolist()) == [1, 2, 2]
    assert columns.prefill_end_s.tolist() == pytest.approx([2.0, 1.0, 3.0])


def test_a_dead_remote_node_brings_its_offload_home_as_a_fallback() -> None:
    columns = run(
        deployment(remote=1),
        workload([0.0], 1000, 1),
        kill(0.5, NEVER, "far-prefill-0"),
        threshold_tokens=0,
    )
    assert columns.took(Route.FALLBACK).all()
    assert columns.region.tolist() == [0]
    assert columns.kv_bytes.tolist() == [0.0]
    assert columns.prefill_end_s.tolist() == pytest.approx([1.5])


def test_an_offload_on_its_way_to_a_node_that_dies_comes_home() -> None:
    columns = run(
        deployment(remote=1, rtt_s=1.0),
        workload([0.0], 1000, 1),
        kill(0.2, NEVER, "far-prefill-0"),
        threshold_tokens=0,
    )
    assert columns.took(Route.FALLBACK).all()
    assert columns.prefill_start_s.tolist() == pytest.approx([0.5])


def test_tokens_continue_elsewhere_when_a_decode_node_dies_midway() -> None:
    place, requests = deployment(decode=2), workload([0.0], 1000, 101)
    whole = run(place, requests)
    # The first token is at 1.01 s; after 50 steps the node dies.
    columns = run(place, requests, kill(whole.kv_arrival_s[0] + 0.505, NEVER, "pd-decode-0"))
    assert columns.first_token_s == pytest.approx(whole.first_token_s)
    assert columns.kv_arrival_s == pytest.approx(whole.kv_arrival_s)
    # The prompt and 50 tokens are prefilled again, the 51 that are left are decoded.
    lost_s, again_s = 0.005, 1.050
    assert columns.finish_s - whole.finish_s == pytest.approx(lost_s + again_s, abs=1e-3)
    assert columns.attempts.tolist() == [2]


def test_a_first_token_that_never_came_is_not_counted() -> None:
    place, requests = deployment(decode=2), workload([0.0], 1000, 10)
    columns = run(place, requests, kill(1.005, NEVER, "pd-decode-0"))
    assert columns.first_token_s.tolist() == pytest.approx([1.005 + 1.0 + 0.01], abs=1e-3)


def test_a_decode_node_that_dies_with_requests_on_the_way_takes_new_ones_after() -> None:
    columns = run(
        deployment(),
        workload([0.0, 3.0], 1000, 10),
        kill(0.5, 0.7, "pd-decode-0"),
    )
    assert columns.answered.all()
    assert columns.attempts.tolist() == [1, 1]


def test_without_a_node_requests_are_refused_and_after_it_is_back_answered() -> None:
    columns = run(deployment(), workload([0, 1, 2, 6], 100, 1), kill(0.5, 5.0, "pd-decode-0"))
    assert columns.outcome.tolist() == [
        Outcome.ANSWERED,
        Outcome.REFUSED,
        Outcome.REFUSED,
        Outcome.ANSWERED,
    ]


def test_offloads_on_a_dead_link_come_home_within_the_timeout() -> None:
    place = deployment(remote=1, offload_timeout_s=3.0)
    outage = Fault(0.5, NEVER, FaultKind.LINK_RATE, "far", 0.0)
    columns = run(place, workload([0.0, 2.0], 1000, 1), outage, threshold_tokens=0)
    assert columns.took(Route.FALLBACK).all()
    assert columns.prefill_start_s.tolist() == pytest.approx([3.5, 5.0])


def test_a_short_outage_delays_and_fails_nothing() -> None:
    place = deployment(remote=1, link_bytes_per_s=1e6, offload_timeout_s=3.0)
    outage = Fault(1.5, 3.5, FaultKind.LINK_RATE, "far", 0.0)
    columns = run(place, workload([0.0], 1000, 1), outage, threshold_tokens=0)
    assert columns.attempts.tolist() == [1]
    assert columns.kv_arrival_s.tolist() == pytest.approx([4.0])  # half before, half after


def test_a_slower_link_and_a_slower_node_take_that_much_longer() -> None:
    place = deployment(remote=1, link_bytes_per_s=1e6)
    slow_link = Fault(0.0, NEVER, FaultKind.LINK_RATE, "far", 0.25)
    slow_node = Fault(0.0, NEVER, FaultKind.SLOW, "far-prefill-0", 3.0)
    columns = run(place, workload([0.1], 1000, 1), slow_link, slow_node, threshold_tokens=0)
    assert columns.prefill_end_s - columns.prefill_start_s == pytest.approx(3.0)
    assert columns.kv_arrival_s - columns.prefill_end_s == pytest.approx(4.0)


def test_of_overlapping_faults_the_worst_counts_until_the_last_ends() -> None:
    place = deployment(prefill=1)
    faults = [
        kill(1.0, 3.0, "pd-prefill-0"),
        kill(2.0, 6.0, "pd-prefill-0"),
        Fault(0.0, 20.0, FaultKind.SLOW, "pd-prefill-0", 2.0),
        Fault(5.0, 10.0, FaultKind.SLOW, "pd-prefill-0", 4.0),
    ]
    columns = run(place, workload([0, 4, 7, 15, 25], 100, 1), *faults)
    assert columns.outcome.tolist() == [
        Outcome.ANSWERED,
        Outcome.REFUSED,
        *[Outcome.ANSWERED] * 3,
    ]
    took_s = columns.prefill_end_s - columns.prefill_start_s
    assert took_s[[0, 2, 3, 4]] == pytest.approx([0.2, 0.4, 0.2, 0.1])


def test_latency_is_as_before_once_all_is_well_again() -> None:
    arrival_s = np.arange(0, 300, 0.5)
    place = deployment(prefill=2, decode=2, remote=1, local_profile=profile(max_batch=64))
    faults = [
        kill(50, 60, "pd-prefill-0"),
        kill(70, 80, "pd-decode-1"),
        Fault(90, 100, FaultKind.LINK_RATE, "far", 0.0),
    ]
    prompts = np.tile([400, 900], len(arrival_s) // 2)
    requests = workload(arrival_s, prompts, 20)
    calm = run(place, requests, threshold_tokens=500)
    columns = run(place, requests, *faults, threshold_tokens=500)
    assert columns.answered.all()
    assert columns.attempts.max() <= 3
    later = arrival_s > 200
    assert columns.ttft_s[later] == pytest.approx(calm.ttft_s[later])
    assert columns.ttft_s.max() < 20


class ConvertingPolicy(ThresholdPolicy):
    """Gives a node another role at its first chance, and back at a later one."""

    period_s = 1.0

    def __init__(self, *steps: tuple[float, str, Role]) -> None:
        super().__init__(EVERYTHING_LOCAL)
        self._steps = list(steps)

    def start(self, world: World) -> None:
        super().start(world)
        self._world = world

    def act(self, now_s: float) -> None:
        while self._steps and self._steps[0][0] <= now_s:
            _, name, role = self._steps.pop(0)
            self._world.convert(name, role)


def test_a_node_changes_roles_after_what_was_sent_to_it_is_done() -> None:
    arrival_s = np.arange(0, 30, 0.25)
    policy = ConvertingPolicy((3.0, "pd-decode-0", Role.PREFILL))
    world = World(deployment(decode=2, conversion_s=5.0), workload(arrival_s, 300, 50), policy)
    columns = world.run()
    check_run(world, columns)
    assert columns.answered.all()
    assert columns.attempts.max() == 1
    assert set(world.prefill_servers) == {"pd-prefill-0", "pd-decode-0"}
    assert set(world.decode_servers) == {"pd-decode-1"}
    # Prefill was overloaded (1.2) with one node, and is not with two.
    waited_s = columns.prefill_start_s - columns.arrival_s
    assert waited_s[-1] < 0.1 < waited_s.max()


def test_a_node_that_dies_while_it_changes_roles_comes_back_when_the_fault_ends() -> None:
    policy = ConvertingPolicy((2.0, "pd-decode-0", Role.PREFILL))
    world = World(
        deployment(decode=2, conversion_s=1.0),
        workload(np.arange(0, 30, 0.25), 300, 50),
        policy,
        faults=(kill(2.5, 15.0, "pd-decode-0"),),
    )
    seen: list[tuple[float, int]] = []
    for at_s in (10.0, 20.0):
        world.events.at(at_s, lambda _: seen.append((world.events.now_s, len(world.pd.pool))))
    columns = world.run()
    check_run(world, columns)
    assert seen == [(10.0, 1), (20.0, 2)]


def test_a_decision_for_a_node_that_has_left_is_a_failed_attempt() -> None:
    def record(name: str, role: Role) -> NodeRecord:
        return NodeRecord(name, role, "pd", url="", session="", model_id="sim")

    gone = record("pd-prefill-9", Role.PREFILL)
    decode = record("pd-decode-0", Role.DECODE)
    policy = StalePolicy(Decision(Route.LOCAL, Reason.BELOW_THRESHOLD, gone, decode))
    world = World(deployment(), workload([0.0], 100, 1), policy)
    columns = world.run()
    check_run(world, columns)
    assert columns.answered.all()
    assert columns.attempts.tolist() == [2]


class AbundantPolicy(ThresholdPolicy):
    """Has room on its links for moves."""

    def start(self, world: World) -> None:
        super().start(world)
        self.set_links({name: LinkRule(Bandwidth.ABUNDANT) for name in world.remotes})


def test_a_move_over_a_dead_link_is_given_up_and_the_prompt_computed_whole() -> None:
    place = deployment(
        remote=1, offload_timeout_s=3.0, cache=CacheSpec(1e6, shared=False, stateful=False)
    )
    chains = (((1, 4000),), ((1, 4000),))
    outage = Fault(50.0, NEVER, FaultKind.LINK_RATE, "far", 0.0)
    world = World(
        place,
        workload([0.0, 100.0], [10_000, 5_000], 10, chains),
        AbundantPolicy(2_000),
        faults=(outage,),
    )
    columns = world.run()
    check_run(world, columns)
    assert columns.attempts.tolist() == [1, 1]
    assert columns.prefill_start_s[1] == pytest.approx(103.0)
    assert columns.uncached_tokens.tolist() == [10_000, 5_000]


@pytest.mark.parametrize(
    ("kind", "target"),
    [(FaultKind.KILL, "nobody"), (FaultKind.SLOW, "far"), (FaultKind.LINK_RATE, "pd")],
)
def test_a_fault_without_a_target_is_refused(kind: FaultKind, target: str) -> None:
    fault = Fault(0.0, 1.0, kind, target, 1.0)
    with pytest.raises(ConfigError, match=target):
        World(deployment(remote=1), workload([0.0], 1, 1), ThresholdPolicy(0), faults=(fault,))


def test_many_retries_are_counted() -> None:
    # 200 decode nodes die one after the other under the same request.
    place = deployment(decode=200, local_profile=profile(prefill_s=linear(1e-6)))
    names = sorted(f"pd-decode-{index}" for index in range(200))
    faults = [kill(1.0 + index, NEVER, name) for index, name in enumerate(names[:-1])]
    columns = run(place, workload([0.0], 1000, 100_000), *faults)
    assert columns.answered.all()
    assert columns.attempts.tolist() == [200]
