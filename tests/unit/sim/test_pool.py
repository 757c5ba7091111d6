"""IndexedNodes decides as a list of all its servers would, where it says that it does."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from prfaas.records import NodeRecord, Role
from prfaas.routing import (
    Bandwidth,
    LinkRule,
    ListedNodes,
    NodeState,
    RemoteRegion,
    Snapshot,
    decide,
    decide_retry,
)
from prfaas.routing.decision import Decision
from prfaas.sim.cache import CacheDirectory, NodeCache
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.request import SimRequest

SEEDS = st.integers(0, 2**32 - 1)


class FakeServer:
    """A server whose load a test sets."""

    def __init__(self, name: str, role: Role, region: str, pool: IndexedNodes) -> None:
        self.record = NodeRecord(name, role, region, url="", session="", model_id="sim")
        self.in_flight = 0
        self.backlog_tokens = 0
        self.rank = 0
        self.listed = -1
        self.pool = pool
        self.cache = NodeCache(1e9, pool.directory, stateful=False)
        pool.join(self)


class Rig:
    """Pools of one snapshot under random load."""

    def __init__(self, rng: random.Random, *, holders: int) -> None:
        self.rng = rng
        self.holders = holders
        self.decodes = self._pool("d", Role.DECODE, "pd")
        self.local = self._pool("p", Role.PREFILL, "pd")
        self.far = self._pool("f", Role.PREFILL, "far")
        link = LinkRule(rng.choice(list(Bandwidth)), rng.choice([1.0, 2.0]), rng.random() < 0.2)
        self.indexed = self._snapshot(self.decodes, self.local, self.far, link)
        self.link = link

    def listed(self, request: SimRequest) -> Snapshot[SimRequest]:
        pools = [self._list(pool, request) for pool in (self.decodes, self.local, self.far)]
        return self._snapshot(*pools, self.link)

    def change(self) -> None:
        """Change some loads, and who is there."""
        rng = self.rng
        for pool in (self.decodes, self.local, self.far):
            for server in pool.servers():
                assert isinstance(server, FakeServer)
                if rng.random() < 0.5:
                    before = (server.backlog_tokens, server.in_flight)
                    server.in_flight = rng.randint(0, 3)
                    server.backlog_tokens = 0 if pool is self.decodes else rng.randint(0, 6) * 100
                    if (server.backlog_tokens, server.in_flight) < before:
                        pool.touch(server)  # a load that only rose is found out without
                if rng.random() < 0.1 and len(pool) > 1:
                    pool.leave(server)
                    server.cache.hide()

    def _pool(self, letter: str, role: Role, region: str) -> IndexedNodes:
        pool = IndexedNodes(CacheDirectory())
        servers = [FakeServer(f"{letter}{i}", role, region, pool) for i in range(20)]
        if role is Role.PREFILL:
            for server in self.rng.sample(servers, self.rng.randint(0, self.holders)):
                server.cache.insert(((1, 300),))
        return pool

    def _snapshot(
        self, decodes: object, local: object, far: object, link: LinkRule
    ) -> Snapshot[SimRequest]:
        remotes = (RemoteRegion("far", far, link),)  # type: ignore[arg-type]
        return Snapshot("pd", 400, decodes, local, remotes)  # type: ignore[arg-type]

    def _list(self, pool: IndexedNodes, request: SimRequest) -> ListedNodes:
        return ListedNodes(
            tuple(
                NodeState(
                    server.record,
                    server.in_flight,
                    server.cache.lookup(request.chain, request.prompt_tokens),
                    0.0,
                    server.backlog_tokens,
                )
                for server in pool.servers()
            )
        )


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_decisions_are_those_of_all_servers_listed(seed: int) -> None:
    rng = random.Random(seed)
    rig = Rig(rng, holders=16)
    for index in range(10):
        rig.change()
        tokens = rng.choice([100, 310, 500, 900])
        request = SimRequest(index, tokens, 1, rng.choice([(), ((1, 300),), ((2, 300),)]))
        assert decide(request, rig.indexed, 0.0) == decide(request, rig.listed(request), 0.0)


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_retries_are_those_of_all_servers_listed_however_many_hold_the_prefix(seed: int) -> None:
    rng = random.Random(seed)
    rig = Rig(rng, holders=20)
    rig.change()
    request = SimRequest(0, 500, 1, ((1, 300),))
    failed = decide(request, rig.indexed, 0.0)
    assert isinstance(failed, Decision)
    avoid = frozenset({failed.prefill.name, failed.decode.name})
    assert decide_retry(request, rig.indexed, 0.0, failed=failed, avoid=avoid) == decide_retry(
        request, rig.listed(request), 0.0, failed=failed, avoid=avoid
    )


def test_a_shorter_prefix_on_a_server_between_is_not_looked_at() -> None:
    # What the index gives up: of b (100 tokens cached, 150 behind) nobody asks.
    pool = IndexedNodes(CacheDirectory())
    a, b, c = (FakeServer(name, Role.PREFILL, "pd", pool) for name in "abc")
    for server, backlog in ((a, 100), (b, 150), (c, 900)):
        server.backlog_tokens = backlog
        pool.touch(server)
    b.cache.insert(((1, 100),))
    c.cache.insert(((1, 100), (2, 200)))
    request = SimRequest(0, 500, 1, ((1, 100), (2, 200)))
    found = {state.record.name for state in pool.candidates(request, 0.0, frozenset())}
    assert found == {"a", "c"}


def test_the_heap_stays_within_a_few_entries_per_server() -> None:
    pool = IndexedNodes()
    servers = [FakeServer(f"p{index}", Role.PREFILL, "pd", pool) for index in range(10)]
    for round_number in range(10_000):
        server = servers[round_number % 10]
        server.backlog_tokens = round_number
        pool.touch(server)
    assert len(pool._heap) <= 8 * 10 + 65


def test_a_server_that_left_is_not_chosen_and_its_namesake_is_another() -> None:
    pool = IndexedNodes()
    old = FakeServer("p", Role.PREFILL, "pd", pool)
    pool.leave(old)
    request = SimRequest(0, 100, 1, ())
    assert pool.candidates(request, 0.0, frozenset()) == ()
    FakeServer("p", Role.PREFILL, "pd", pool)
    assert len(pool.candidates(request, 0.0, frozenset())) == 1


def test_a_server_that_leaves_late_does_not_take_its_namesake_along() -> None:
    pool = IndexedNodes(CacheDirectory())
    old = FakeServer("p", Role.PREFILL, "pd", pool)
    old.cache.insert(((1, 300),))
    new = FakeServer("p", Role.PREFILL, "pd", pool)
    new.in_flight = 7
    pool.leave(old)
    assert pool.servers() == [new]
    request = SimRequest(0, 500, 1, ((1, 300),))
    assert {state.in_flight for state in pool.candidates(request, 0.0, frozenset())} == {7}
    pool.leave(new)
    assert pool.candidates(request, 0.0, frozenset()) == ()


def test_loads_below_zero_are_in_order_too() -> None:
    pool = IndexedNodes(CacheDirectory())
    servers = [FakeServer(f"p{index}", Role.PREFILL, "pd", pool) for index in range(6)]
    request = SimRequest(0, 100, 1, ())
    rng = random.Random(1)
    gone = servers.pop()
    pool.leave(gone)
    for _ in range(300):
        for server in (rng.choice(servers), gone):
            server.backlog_tokens, server.in_flight = rng.randint(-3, 3), rng.randint(-3, 3)
            pool.touch(server)
        (state,) = pool.candidates(request, 0.0, frozenset())
        least = min(servers, key=lambda s: (s.backlog_tokens, s.in_flight, s.record.name))
        assert state.record is least.record
