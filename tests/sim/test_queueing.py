"""Prefill queues against queueing theory, and against the recursions that theory is made of."""

import math
from heapq import heappop, heappush

import numpy as np
import pytest
from numpy.typing import NDArray
from sim_rig import deployment, linear, profile, workload

from prfaas.records import NodeRecord, Role
from prfaas.sim.cache import NodeCache
from prfaas.sim.events import Events
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.prefill import PrefillQueue, PrefillServer
from prfaas.sim.request import SimRequest
from prfaas.sim.world import World

Floats = NDArray[np.float64]

MEAN_TOKENS = 10_000
S_PER_TOKEN = 1 / MEAN_TOKENS  # a mean prompt takes one second


class Queueing:
    """Prefill servers with a central queue and nothing else."""

    def __init__(self, arrival_s: Floats, prompts: NDArray[np.int64], servers: int) -> None:
        self.events = Events()
        self._arrivals, self._prompts = arrival_s.tolist(), prompts.tolist()
        self.start_s = np.empty(len(arrival_s))
        pool, queue = IndexedNodes(), PrefillQueue()
        self._servers = [
            PrefillServer(
                NodeRecord(f"p{index}", Role.PREFILL, "pd", url="", session="", model_id="sim"),
                self.events,
                linear(S_PER_TOKEN),
                NodeCache(0, pool.directory, stateful=False),
                pool,
                queue=queue,
                on_start=self._on_start,
                on_done=lambda _: None,
            )
            for index in range(servers)
        ]
        for server in self._servers:
            server.recover()
        self.events.at(self._arrivals[0], self._arrive, 0)
        self.events.run(math.inf)

    def _arrive(self, index: int) -> None:
        if index + 1 < len(self._arrivals):
            self.events.at(self._arrivals[index + 1], self._arrive, index + 1)
        request = SimRequest(index, self._prompts[index], 1, ())
        self._servers[0].reserve(request)
        self._servers[0].submit(request)

    def _on_start(self, request: SimRequest, _: float) -> None:
        self.start_s[request.index] = self.events.now_s


def mean_wait(
    seed: int, load: float, servers: int, count: int, *, fixed: bool
) -> tuple[float, float]:
    """Return the mean wait of Poisson arrivals and its statistical error, by batch means.

    What a batch waits depends on how long its prompts and gaps happened to be, whose true means are
    known: the mean is what a straight line through the batches says for those. The first batches,
    from an empty system, are left out.
    """
    rng = np.random.default_rng(seed)
    gap_s = rng.exponential(1 / (load * servers), count)
    drawn = np.full(count, MEAN_TOKENS) if fixed else rng.exponential(MEAN_TOKENS, count)
    prompts = np.maximum(np.rint(drawn), 1).astype(np.int64)
    arrival_s = np.cumsum(gap_s)
    waited_s = Queueing(arrival_s, prompts, servers).start_s - arrival_s
    by_batch = [
        column.reshape(100, -1).mean(axis=1)[5:]
        for column in (waited_s, prompts / MEAN_TOKENS - 1, gap_s * load * servers - 1)
    ]
    chances = np.column_stack([np.ones(95), *by_batch[1:]])
    inverse = np.linalg.pinv(chances)
    line = inverse @ by_batch[0]
    rest = by_batch[0] - chances @ line
    error_s = math.sqrt(float(inverse[0] @ inverse[0] * (rest @ rest) / (95 - 3)))
    return float(line[0]), error_s


def check_wait(found: tuple[float, float], expected_s: float) -> None:
    wait_s, error_s = found
    assert error_s < 0.01 * expected_s
    assert wait_s == pytest.approx(expected_s, rel=0.03)


def erlang_c(servers: int, load: float) -> float:
    """Return the probability to wait.

    >>> round(erlang_c(1, 0.5), 3)
    0.5
    """
    offered = servers * load
    below = sum(offered**k / math.factorial(k) for k in range(servers))
    full = offered**servers / math.factorial(servers) / (1 - load)
    return full / (below + full)


@pytest.mark.parametrize(("load", "count"), [(0.3, 200_000), (0.5, 200_000), (0.7, 450_000)])
def test_one_server_with_exponential_prompts_waits_as_m_m_1(load: float, count: int) -> None:
    check_wait(mean_wait(7, load, 1, count, fixed=False), load / (1 - load))


def test_one_server_with_equal_prompts_waits_as_m_d_1() -> None:
    check_wait(mean_wait(12, 0.6, 1, 200_000, fixed=True), 0.6 / (2 * (1 - 0.6)))


def test_a_central_queue_waits_as_m_m_c() -> None:
    expected_s = erlang_c(2, 0.7) / (2 * (1 - 0.7))
    check_wait(mean_wait(9, 0.7, 2, 700_000, fixed=False), expected_s)


def first_come_first_served(arrival_s: Floats, service_s: Floats, servers: int) -> Floats:
    """Return when each is begun, by the servers that are free first."""
    free: list[float] = []
    for _ in range(servers):
        heappush(free, 0.0)
    starts = []
    for arrived_s, took_s in zip(arrival_s, service_s, strict=True):
        start_s = max(arrived_s, heappop(free))
        starts.append(start_s)
        heappush(free, start_s + took_s)
    return np.array(starts)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("central", [True, False])
def test_a_whole_deployment_begins_prompts_when_the_recursion_says(
    servers: int, central: bool
) -> None:
    rng = np.random.default_rng(10)
    arrival_s = np.cumsum(rng.exponential(1 / (0.8 * servers), 5000))
    # With equal prompts the least backlog is the server that is free first, so both agree.
    prompts = rng.integers(1, 20_000, 5000) if central or servers == 1 else np.full(5000, 10_000)
    world = World(
        deployment(
            prefill=servers,
            decode=4,
            local_profile=profile(prefill_s=linear(S_PER_TOKEN), max_batch=1000),
            central_queue=central,
        ),
        workload(arrival_s, prompts, 5),
        ThresholdPolicy(1 << 40),
    )
    columns = world.run()
    expected = first_come_first_served(arrival_s, prompts * S_PER_TOKEN, servers)
    if central or servers == 1:
        assert columns.prefill_start_s == pytest.approx(expected, abs=1e-6)
    else:
        excess_s = columns.prefill_start_s - expected
        assert abs(excess_s.mean()) < 0.35  # backlog counts whole prompts, however far they are
