"""What a link adds to the time to first token, told by hand."""

import numpy as np
import pytest
from sim_rig import EVERYTHING_LOCAL, deployment, linear, profile, workload

from prfaas.routing import Bandwidth, LinkRule
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.record import Columns
from prfaas.sim.scenario import CacheSpec, Deployment, Workload
from prfaas.sim.world import World

STEP_S = 0.01
PROMPT_TOKENS = 10_000
PREFILL_S = 10.0
KV_BYTES = 1e7


def offload(**more: object) -> Columns:
    """One prompt of 10 s and 10 MB, prefilled remotely; the first token after one step of 10 ms."""
    found = World(
        deployment(remote=1, **more),  # type: ignore[arg-type]
        workload([1.0], PROMPT_TOKENS, 10),
        ThresholdPolicy(0),
    ).run()
    assert found.region.tolist() == [1]
    return found


def test_a_round_trip_is_added_half_on_the_way_out_and_half_back() -> None:
    near, far = offload(rtt_s=0.0), offload(rtt_s=0.3)
    assert far.ttft_s - near.ttft_s == pytest.approx(0.3)
    assert far.prefill_start_s - near.prefill_start_s == pytest.approx(0.15)
    assert far.kv_arrival_s - far.prefill_end_s == pytest.approx(KV_BYTES / 1e9 + 0.15)


def test_a_local_request_knows_no_round_trip() -> None:
    columns = World(
        deployment(remote=1, rtt_s=0.3),
        workload([1.0], PROMPT_TOKENS, 10),
        ThresholdPolicy(EVERYTHING_LOCAL),
    ).run()
    exposed_s = KV_BYTES / 50e9
    assert columns.ttft_s == pytest.approx(PREFILL_S + exposed_s + STEP_S)


def test_without_layers_the_whole_transfer_follows_the_prefill() -> None:
    columns = offload(layers=1, link_bytes_per_s=2e6)
    assert columns.kv_arrival_s - columns.prefill_end_s == pytest.approx(KV_BYTES / 2e6)
    assert columns.ttft_s == pytest.approx(PREFILL_S + KV_BYTES / 2e6 + STEP_S)


def test_layer_by_layer_only_the_last_is_left_when_the_prefill_ends() -> None:
    # Production is at 1 MB/s, the link twice as fast.
    columns = offload(layers=57, link_bytes_per_s=2e6)
    assert columns.kv_arrival_s - columns.prefill_end_s == pytest.approx(KV_BYTES / 57 / 2e6)


def test_a_link_slower_than_production_is_busy_from_the_first_layer_on() -> None:
    columns = offload(layers=57, link_bytes_per_s=0.5e6)
    assert columns.kv_arrival_s - columns.prefill_start_s == pytest.approx(KV_BYTES / 0.5e6)


def test_what_the_pd_cluster_has_cached_is_not_sent() -> None:
    chain = ((1, 4000), (2, 8000))
    found = World(
        deployment(remote=1, cache=CacheSpec(1e6, stateful=False)),
        workload([0.0, 100.0], PROMPT_TOKENS, 10, (chain, chain)),
        ThresholdPolicy(0),
    ).run()
    assert found.kv_bytes.tolist() == [1e7, 2e6]
    assert found.uncached_tokens.tolist() == [10_000, 2_000]


class AbundantPolicy(ThresholdPolicy):
    """Has room on its links for moves."""

    def start(self, world: World) -> None:
        super().start(world)
        self.set_links({name: LinkRule(Bandwidth.ABUNDANT) for name in world.remotes})


def moved(link_bytes_per_s: float) -> tuple[Deployment, Workload]:
    """A long prompt is offloaded; a short one that continues half of it stays at home.

    Caches are of the nodes, so the PD cluster has nothing of the first.
    """
    place = deployment(
        remote=1,
        rtt_s=0.2,
        link_bytes_per_s=link_bytes_per_s,
        cache=CacheSpec(1e6, shared=False, stateful=False),
    )
    chains = (((1, 4000), (2, 8000)), ((1, 4000), (3, 4500)))
    return place, workload([0.0, 100.0], [10_000, 5_000], 10, chains)


def test_a_prefix_is_moved_to_where_the_request_is_computed() -> None:
    place, requests = moved(link_bytes_per_s=2e6)
    world = World(place, requests, AbundantPolicy(2_000))
    columns = world.run()
    assert columns.region.tolist() == [1, 0]
    assert columns.uncached_tokens.tolist() == [10_000, 1_000]
    # 4 MB over the link and a round trip, then 1 s of prefill.
    assert columns.prefill_start_s[1] == pytest.approx(100 + 4e6 / 2e6 + 0.2)
    assert columns.prefill_end_s[1] == pytest.approx(100 + 4e6 / 2e6 + 0.2 + 1.0)
    egress = world.remotes["far"].egress
    assert egress is not None
    assert egress.reading()[0] == pytest.approx(1e7 + 4e6)


def test_a_state_moves_with_its_prefix() -> None:
    # A linear-attention model's state of 1 MB goes along with whatever prefix is moved.
    place, requests = moved(link_bytes_per_s=1e6)
    model = profile(kv_bytes=linear(100.0, 1e6))
    place = deployment(
        remote=1,
        link_bytes_per_s=1e6,
        local_profile=model,
        cache=CacheSpec(1e6, shared=False, stateful=False),
    )
    columns = World(place, requests, AbundantPolicy(2_000)).run()
    assert columns.prefill_start_s[1] == pytest.approx(100 + (1e6 + 4000 * 100) / 1e6)


def test_concurrent_transfers_share_the_link() -> None:
    found = World(
        deployment(remote=2, link_bytes_per_s=1e6),
        workload([0.0, 0.0], PROMPT_TOKENS, 10),
        ThresholdPolicy(0),
    ).run()
    assert np.ptp(found.kv_arrival_s) == pytest.approx(0.0, abs=1e-6)
    assert found.kv_arrival_s[0] - found.prefill_end_s[0] == pytest.approx(2 * KV_BYTES / 1e6)
