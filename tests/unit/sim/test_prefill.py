"""PrefillServer: order, batches, one queue for many, death."""

import math

import pytest

from prfaas.profile import PolynomialCurve
from prfaas.records import NodeRecord, Role
from prfaas.sim.cache import NodeCache
from prfaas.sim.events import Events
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.prefill import PrefillQueue, PrefillServer
from prfaas.sim.request import SimRequest


class Rig:
    """Prefill servers p0, p1, ...: 0.1 s a batch and 1 ms a token."""

    def __init__(
        self, servers: int = 1, *, central: bool = False, batch_tokens: int = 0, cache: int = 0
    ) -> None:
        self.events = Events()
        self.pool = IndexedNodes()
        self.started: list[tuple[float, int]] = []
        self.done: list[tuple[float, int]] = []
        self.count = 0
        queue = PrefillQueue() if central else None
        self.servers = [
            PrefillServer(
                NodeRecord(f"p{index}", Role.PREFILL, "pd", url="", session="", model_id="sim"),
                self.events,
                PolynomialCurve((0.1, 1e-3)),
                NodeCache(cache, self.pool.directory, stateful=False),
                self.pool,
                queue=queue,
                batch_tokens=batch_tokens,
                on_start=lambda request, _: self._note(self.started, request),
                on_done=lambda request: self._note(self.done, request),
            )
            for index in range(servers)
        ]
        for server in self.servers:
            server.recover()

    def come(self, at_s: float, tokens: int, server: int = 0, chain: object = ()) -> SimRequest:
        request = SimRequest(self.count, tokens, 1, chain)  # type: ignore[arg-type]
        self.count += 1
        self.events.at(at_s, self._submit, (self.servers[server], request))
        return request

    def run(self, until_s: float = math.inf) -> None:
        self.events.run(until_s)

    def idle(self) -> bool:
        return all((s.in_flight, s.backlog_tokens) == (0, 0) for s in self.servers)

    def _submit(self, argument: tuple[PrefillServer, SimRequest]) -> None:
        server, request = argument
        server.reserve(request)
        server.submit(request)

    def _note(self, where: list[tuple[float, int]], request: SimRequest) -> None:
        where.append((round(self.events.now_s, 6), request.index))


def test_prompts_are_computed_one_by_one_in_order() -> None:
    rig = Rig()
    for tokens in (100, 300, 200):
        rig.come(0.0, tokens)
    rig.run()
    assert rig.started == [(0.0, 0), (0.2, 1), (0.6, 2)]
    assert rig.done == [(0.2, 0), (0.6, 1), (0.9, 2)]
    assert rig.idle()


def test_a_batch_is_what_fits_in_tokens() -> None:
    rig = Rig(batch_tokens=600)
    for tokens in (100, 200, 300, 200, 900):
        rig.come(0.0, tokens)
    rig.run()
    # The first goes alone at once; then 200 + 300 of 600 tokens; then 200, and what fits nowhere.
    assert rig.started == [(0.0, 0), (0.2, 1), (0.2, 2), (0.8, 3), (1.1, 4)]
    assert rig.done == [(0.2, 0), (0.8, 1), (0.8, 2), (1.1, 3), (2.1, 4)]
    assert rig.idle()


def test_the_head_of_a_central_queue_goes_to_the_first_that_is_free() -> None:
    rig = Rig(2, central=True)
    for tokens in (900, 100, 100, 100):
        rig.come(0.0, tokens)  # all are sent to the first server
    rig.run()
    assert rig.started == [(0.0, 0), (0.0, 1), (0.2, 2), (0.4, 3)]
    assert rig.idle()


def test_own_queues_keep_what_was_sent_to_them() -> None:
    rig = Rig(2)
    for tokens in (900, 100):
        rig.come(0.0, tokens)
    rig.run()
    assert rig.started == [(0.0, 0), (1.0, 1)]


def test_a_prefix_hit_is_not_computed_and_its_owner_has_less_backlog() -> None:
    rig = Rig(cache=10_000)
    chain = ((1, 500), (2, 1000))
    rig.come(0.0, 1000, chain=chain)
    second = rig.come(5.0, 1400, chain=chain)
    rig.run(5.0)
    assert rig.servers[0].backlog_tokens == 400
    rig.run()
    assert second.uncached_tokens == 400
    assert rig.done[-1] == (5.5, 1)


@pytest.mark.parametrize("central", [False, True])
def test_death_returns_what_was_here(central: bool) -> None:
    rig = Rig(central=central)
    requests = [rig.come(0.0, 100) for _ in range(3)]
    rig.run(0.05)
    assert rig.servers[0].fail() == requests  # nobody else could take what waits
    rig.run()
    assert rig.done == []
    assert rig.idle()
    assert len(rig.pool) == 0


def test_death_leaves_the_central_queue_to_the_others() -> None:
    rig = Rig(2, central=True)
    requests = [rig.come(0.0, 100) for _ in range(4)]
    rig.run(0.05)
    assert rig.servers[0].fail() == [requests[0]]
    rig.run()
    assert [index for _, index in rig.done] == [1, 2, 3]
    assert rig.idle()


def test_a_server_that_is_back_takes_from_the_central_queue() -> None:
    rig = Rig(2, central=True)
    for _ in range(4):
        rig.come(0.0, 100)
    rig.run(0.05)
    rig.servers[0].fail()
    rig.run(0.1)
    rig.servers[0].recover()
    rig.run()
    assert rig.started == [(0.0, 0), (0.0, 1), (0.1, 2), (0.2, 3)]


def test_void_entries_are_passed_over_and_given_back() -> None:
    rig = Rig()
    requests = [rig.come(0.0, 100) for _ in range(3)]
    rig.run(0.05)
    requests[0].attempt += 1  # under way: computed for nothing
    requests[1].attempt += 1  # waits: not computed
    rig.run()
    assert rig.started == [(0.0, 0), (0.2, 2)]
    assert [index for _, index in rig.done] == [2]
    assert rig.idle()


@pytest.mark.parametrize("central", [False, True])
def test_a_draining_server_leaves_when_its_last_is_done(central: bool) -> None:
    rig = Rig(central=central)
    for _ in range(2):
        rig.come(0.0, 100)
    rig.run(0.05)
    left_s: list[float] = []
    rig.servers[0].drain(lambda: left_s.append(rig.events.now_s))
    rig.run()
    assert left_s == [pytest.approx(0.4)]
    assert rig.idle()


def test_a_draining_server_leaves_the_central_queue_to_others() -> None:
    rig = Rig(2, central=True)
    for _ in range(4):
        rig.come(0.0, 100)
    rig.run(0.05)
    left_s: list[float] = []
    rig.servers[0].drain(lambda: left_s.append(rig.events.now_s))
    rig.run()
    assert left_s == [pytest.approx(0.4)]  # when the other took the last that it counted
    assert rig.idle()


def test_slowness_counts_from_the_next_batch_on() -> None:
    rig = Rig()
    rig.come(0.0, 100)
    rig.come(0.0, 100)
    rig.run(0.05)
    rig.servers[0].set_slowness(3.0)
    rig.run()
    assert rig.done == [(0.2, 0), (0.8, 1)]
