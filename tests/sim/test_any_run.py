"""Whatever happens, every request ends once, in order, and nothing it reserved is left behind."""

import random
from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sim_rig import NEVER, RestlessPolicy, check_run, linear, profile

from prfaas.sim.policies.pools import (
    CacheCentricPolicy,
    ColocatedPolicy,
    LeastLoadedPolicy,
)
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.scenario import CacheSpec, Deployment, Fault, FaultKind, Workload
from prfaas.sim.world import World
from prfaas.throughput import PdCluster, PrefillCluster
from prfaas.workload.chain import Chain

SEEDS = st.integers(0, 2**32 - 1)


def random_deployment(rng: random.Random) -> Deployment:
    local = profile(prefill_s=linear(1e-3, 0.01), step_s=linear(1e-3, 0.01), max_batch=4)
    remotes = tuple(
        PrefillCluster(f"far{index}", local, rng.randint(1, 2), rng.choice([3e5, 3e6, 3e8]))
        for index in range(rng.randint(0, 2))
    )
    return Deployment(
        pd=PdCluster("pd", local, rng.randint(1, 3), rng.randint(1, 3)),
        remotes=remotes,
        tpot_s=rng.choice([0.012, 1.0]),
        rtt_s=rng.choice([0.0, 0.1]),
        layers=rng.choice([1, 4]),
        batch_tokens=rng.choice([0, 2000]),
        central_queue=rng.random() < 0.5,
        cache=CacheSpec(
            rng.choice([0, 2000, 1e9]),
            shared=rng.random() < 0.5,
            stateful=rng.random() < 0.5,
            checkpoint_tokens=rng.choice([0, 256]),
        ),
        conversion_s=rng.choice([0.0, 2.0]),
        offload_timeout_s=rng.choice([0.3, 3.0]),
    )


def random_chains(rng: random.Random, prompts: list[int]) -> tuple[Chain, ...]:
    """Prompts that continue one of five conversations, each prefix named by where it is."""
    chains: list[Chain] = []
    for tokens in prompts:
        conversation = rng.randrange(5)
        shared = rng.randint(0, tokens // 128) * 128
        chains.append(
            tuple((conversation * 1_000_000 + at, at) for at in range(128, shared + 1, 128))
        )
    return tuple(chains)


def random_workload(rng: random.Random, count: int) -> Workload:
    arrivals = np.cumsum([rng.expovariate(rng.choice([2.0, 20.0])) for _ in range(count)])
    prompts = [rng.choice([1, 100, 300, 600, 1500]) + rng.randint(0, 99) for _ in range(count)]
    outputs = [rng.choice([1, 2, 20, 200]) for _ in range(count)]
    chains = random_chains(rng, prompts) if rng.random() < 0.7 else ()
    return Workload(arrivals, np.array(prompts), np.array(outputs), chains)


def random_faults(rng: random.Random, deployment: Deployment) -> tuple[Fault, ...]:
    pd = deployment.pd
    nodes = [f"pd-prefill-{index}" for index in range(pd.prefill)]
    nodes += [f"pd-decode-{index}" for index in range(pd.decode)]
    for remote in deployment.remotes:
        nodes += [f"{remote.name}-prefill-{index}" for index in range(remote.instances)]
    kinds = [FaultKind.KILL, FaultKind.KILL, FaultKind.SLOW]
    kinds += [FaultKind.LINK_RATE] * 2 if deployment.remotes else []
    faults = []
    for _ in range(rng.choice([0, 1, 3, 10])):
        kind = rng.choice(kinds)
        at_s = rng.uniform(0, 15)
        until_s = rng.choice([at_s + rng.uniform(0.01, 8), NEVER])
        if kind is FaultKind.LINK_RATE:
            target, value = rng.choice(deployment.remotes).name, rng.choice([0.0, 0.0, 0.3])
        else:
            target, value = rng.choice(nodes), rng.choice([0.5, 4.0])
        faults.append(Fault(at_s, until_s, kind, target, value))
    return tuple(faults)


def random_world(seed: int) -> World:
    rng = random.Random(seed)
    deployment = random_deployment(rng)
    policy = (
        ThresholdPolicy(500)
        if rng.random() < 0.2
        else RestlessPolicy(rng.getrandbits(32), converts=rng.random() < 0.5)
    )
    return World(
        deployment,
        random_workload(rng, rng.choice([10, 60])),
        policy,
        faults=random_faults(rng, deployment),
    )


@example(457)  # a node came back in its first role: two servers of one name in the pool's heap
@example(2423)  # the last server of a central queue died while others drained
@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_every_request_ends_once_and_leaves_nothing_behind(seed: int) -> None:
    world = random_world(seed)
    columns = world.run()
    check_run(world, columns)


@given(SEEDS, st.floats(0.1, 20))
@settings(max_examples=50, deadline=None)
def test_a_run_that_is_cut_short_has_no_later_points(seed: int, until_s: float) -> None:
    world = random_world(seed)
    columns = world.run(until_s)
    finished = columns.finish_s[columns.answered]
    assert np.all(finished <= until_s)
    assert world.events.now_s <= until_s
    assert world.ended == np.count_nonzero(columns.outcome)


@given(SEEDS)
@settings(max_examples=50, deadline=None)
def test_without_faults_everything_is_answered_at_the_first_attempt(seed: int) -> None:
    rng = random.Random(seed)
    world = World(random_deployment(rng), random_workload(rng, 40), ThresholdPolicy(500))
    columns = world.run()
    check_run(world, columns)
    assert columns.answered.all()
    assert np.all(columns.attempts == 1)


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_colocated_nodes_leave_nothing_behind_either(seed: int) -> None:
    rng = random.Random(seed)
    place = random_deployment(rng)
    place = replace(place, pd=replace(place.pd, decode=0), remotes=(), chunk_tokens=256)
    faults = random_faults(rng, place)
    world = World(place, random_workload(rng, 40), ColocatedPolicy(), faults=faults)
    check_run(world, world.run())


@given(SEEDS, st.sampled_from([LeastLoadedPolicy, CacheCentricPolicy]))
@settings(max_examples=100, deadline=None)
def test_policies_of_other_systems_leave_nothing_behind_either(
    seed: int, policy: type[LeastLoadedPolicy]
) -> None:
    rng = random.Random(seed)
    place = random_deployment(rng)
    faults = random_faults(rng, place)
    world = World(place, random_workload(rng, 40), policy(), faults=faults)
    check_run(world, world.run())
