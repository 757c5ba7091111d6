"""DecodeServer against a simulation that counts every step of every request."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prfaas.records import NodeRecord, Role
from prfaas.sim.cache import NodeCache
from prfaas.sim.decode import DecodeServer
from prfaas.sim.events import Events
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.request import SimRequest

STEPS_S = [0.0, 0.010, 0.011, 0.013, 0.016]  # at most 4 in a batch


class Rig:
    """A decode server to which requests come by themselves."""

    def __init__(self, steps_s: list[float] = STEPS_S) -> None:
        self.events = Events()
        self.first_s: dict[int, float] = {}
        self.done_s: dict[int, float] = {}
        self.most_active = 0
        pool = IndexedNodes()
        self.server = DecodeServer(
            NodeRecord("d", Role.DECODE, "pd", url="", session="", model_id="sim"),
            self.events,
            steps_s,
            NodeCache(0, pool.directory, stateful=False),
            pool,
            on_first=self._on_first,
            on_done=self._on_done,
        )
        self.server.recover()

    def come(self, at_s: float, index: int, tokens: int) -> SimRequest:
        request = SimRequest(index, 1, tokens, ())
        self.server.expect()
        self.events.at(at_s, self._admit, request)
        return request

    def run(self, until_s: float = math.inf) -> None:
        self.events.run(until_s)

    def _admit(self, request: SimRequest) -> None:
        self.server.admit(request)
        self.most_active = max(self.most_active, len(self.server._active))

    def _on_first(self, request: SimRequest, first_token_s: float) -> None:
        self.first_s[request.index] = first_token_s

    def _on_done(self, request: SimRequest) -> None:
        assert request.index not in self.done_s
        self.done_s[request.index] = self.events.now_s


@dataclass
class Counted:
    """A request of the reference; `left` is its steps to go."""

    index: int
    left: float


def count_steps(arrivals: list[tuple[float, int]], slow: list[tuple[float, float]]) -> list[float]:
    """Return when each request ends: progress 1/step(b) for all, changes at every event."""
    ends = [0.0] * len(arrivals)
    active: list[Counted] = []
    waiting: list[Counted] = []
    coming = sorted(range(len(arrivals)), key=lambda index: (arrivals[index][0], index))
    changes = [*slow, (math.inf, 1.0)]
    now_s, slowness = 0.0, 1.0
    while coming or active:
        step_s = STEPS_S[len(active)] * slowness
        end_s = now_s + min((r.left for r in active), default=math.inf) * (step_s or 1.0)
        arrival_s = arrivals[coming[0]][0] if coming else math.inf
        next_s = min(end_s, arrival_s, changes[0][0])
        for request in active:
            request.left -= (next_s - now_s) / step_s
        now_s = next_s
        if now_s == changes[0][0]:
            slowness = changes.pop(0)[1]
        for request in [r for r in active if r.left <= 1e-6]:
            active.remove(request)
            ends[request.index] = now_s
        if coming and arrival_s == now_s:
            index = coming.pop(0)
            waiting.append(Counted(index, float(arrivals[index][1])))
        while waiting and len(active) < len(STEPS_S) - 1:
            active.append(waiting.pop(0))
    return ends


ARRIVALS = st.lists(
    st.tuples(st.floats(0, 3).map(lambda at_s: round(at_s, 4) + 0.00003), st.integers(1, 80)),
    min_size=1,
    max_size=25,
)
SLOW = st.lists(st.tuples(st.floats(0, 3), st.sampled_from([0.5, 1.0, 3.0])), max_size=3)


@given(ARRIVALS, SLOW)
@settings(max_examples=200, deadline=None)
def test_requests_end_when_counted_steps_say(
    arrivals: list[tuple[float, int]], slow: list[tuple[float, float]]
) -> None:
    slow = sorted(slow)
    rig = Rig()
    for index, (at_s, tokens) in enumerate(arrivals):
        rig.come(at_s, index, tokens)
    for at_s, slowness in slow:
        rig.events.at(at_s, rig.server.set_slowness, slowness)
    rig.run()
    expected = count_steps(arrivals, slow)
    for index, end_s in enumerate(expected):
        assert rig.done_s[index] == pytest.approx(end_s, rel=1e-9, abs=1e-6)
    assert rig.server.in_flight == 0
    assert rig.most_active <= 4


def test_the_first_token_comes_a_step_after_admission() -> None:
    rig = Rig()
    rig.come(1.0, 0, 100)
    rig.come(1.005, 1, 100)
    rig.run()
    assert rig.first_s == {0: pytest.approx(1.010), 1: pytest.approx(1.005 + 0.011)}


def test_a_full_batch_lets_others_wait_first_come_first_served() -> None:
    rig = Rig()
    for index in range(6):
        rig.come(index * 1e-6, index, 10 if index == 2 else 100)
    rig.run()
    assert rig.most_active == 4
    # The third ends after 10 steps of the full batch; the fifth, first of those who wait, begins.
    assert rig.done_s[2] == pytest.approx(0.160, abs=1e-4)
    assert rig.first_s[4] == pytest.approx(0.176, abs=1e-4)
    assert rig.first_s[5] > rig.first_s[4]


def test_a_dead_server_returns_all_and_how_far_they_came() -> None:
    rig = Rig()
    requests = [rig.come(0.0, index, 50) for index in range(5)]
    late = rig.come(5.0, 5, 50)
    rig.run(0.161)  # ten steps at 16 ms
    lost = rig.server.fail()
    assert lost == requests
    assert [request.decoded_tokens for request in lost] == [10, 10, 10, 10, 0]
    assert rig.server.in_flight == 1  # the late one is still expected
    rig.server.forget()
    assert rig.server.in_flight == 0
    assert late.decoded_tokens == 0


def test_a_request_continues_after_what_was_decoded_elsewhere() -> None:
    rig = Rig()
    request = rig.come(0.0, 0, 50)
    request.decoded_tokens = 30
    rig.run()
    assert rig.done_s[0] == pytest.approx(0.200)


def test_a_server_that_died_busy_works_again_at_once() -> None:
    # The wake-up of its first life lies after what the second life has to do, and is void.
    rig = Rig()
    rig.come(0.0, 0, 1000)
    rig.run(1.0)
    rig.server.fail()
    rig.server.recover()
    rig.come(1.5, 1, 1000)
    rig.run()
    assert rig.done_s == {1: pytest.approx(11.5)}


def test_a_draining_server_finishes_what_was_sent_to_it() -> None:
    rig = Rig()
    rig.come(0.0, 0, 10)
    rig.come(1.0, 1, 10)  # expected, and not here yet
    left_s: list[float] = []
    rig.server.drain(lambda: left_s.append(rig.events.now_s))
    assert len(rig.server.pool) == 0
    rig.run()
    assert left_s == [pytest.approx(1.1)]


def test_a_draining_server_that_expected_only_what_will_not_come_is_done() -> None:
    rig = Rig()
    rig.server.expect()
    left: list[bool] = []
    rig.server.drain(lambda: left.append(True))
    assert not left
    rig.server.forget()
    assert left == [True]
