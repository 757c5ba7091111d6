"""FairLink against water-filling over all flows at every change, and what can be said by hand."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prfaas.sim.events import Events
from prfaas.sim.link import FairLink, Flow

NEVER = math.inf


@dataclass
class Job:
    """A flow of the reference, and when its life changes."""

    opened_s: float
    size_bytes: float
    weight: float
    produce_s: float  # 0: all of it is there at once
    early: float  # the share of it that is produced before the release
    cancel_s: float

    sent_bytes: float = 0.0
    ended_s: float = NEVER

    @property
    def released_s(self) -> float:
        return self.opened_s + self.produce_s

    @property
    def cap(self) -> float:
        return self.size_bytes * self.early / self.produce_s if self.produce_s else NEVER

    def open_at(self, now_s: float) -> bool:
        return self.opened_s <= now_s < min(self.ended_s, self.cancel_s)

    def cap_at(self, now_s: float) -> float:
        return self.cap if now_s < self.released_s else NEVER

    def ready_bytes(self, now_s: float) -> float:
        """What exists of it and counts: what was produced; when cancelled, what was sent."""
        if now_s < self.opened_s:
            return 0.0
        if now_s >= self.cancel_s < self.ended_s:
            return self.sent_bytes
        if now_s >= self.released_s:
            return self.size_bytes
        return self.cap * (now_s - self.opened_s)


def max_min_rates(jobs: list[Job], capacity: float, now_s: float) -> list[float]:
    """Fill all flows alike, by weight, until each is at its cap or the link is full."""
    rates = [0.0] * len(jobs)
    left, capacity_left = set(range(len(jobs))), capacity
    while left:
        level = capacity_left / sum(jobs[index].weight for index in left)
        full = {i for i in left if jobs[i].cap_at(now_s) <= level * jobs[i].weight}
        for index in full or left:
            job = jobs[index]
            rates[index] = job.cap_at(now_s) if full else level * job.weight
            capacity_left -= rates[index]
        left -= full or left
        capacity_left = max(capacity_left, 0.0)
    return rates


def step(jobs: list[Job], capacity: float, now_s: float, until_s: float) -> float:
    """Advance the reference to the next end of a flow, at most to `until_s`."""
    active = [job for job in jobs if job.open_at(now_s)]
    rates = max_min_rates(active, capacity, now_s)
    ends = [
        now_s + (job.size_bytes - job.sent_bytes) / rate
        if rate > 0 and now_s >= job.released_s
        else NEVER
        for job, rate in zip(active, rates, strict=True)
    ]
    next_s = min([until_s, *ends])
    for job, rate, end_s in zip(active, rates, ends, strict=True):
        job.sent_bytes += rate * (next_s - now_s)
        if end_s <= next_s * (1 + 1e-12):
            job.sent_bytes, job.ended_s = job.size_bytes, next_s
    return next_s


Sample = tuple[float, float, float]


def reference(
    jobs: list[Job], rates: list[tuple[float, float]], sample_s: list[float]
) -> list[Sample]:
    """Run the jobs; return (time, bytes sent, bytes that exist and are not sent) at the samples."""
    changes = {job.opened_s for job in jobs} | {job.released_s for job in jobs}
    changes |= {job.cancel_s for job in jobs if job.cancel_s < NEVER}
    changes |= {time_s for time_s, _ in rates} | set(sample_s)
    now_s, capacity, samples = 0.0, rates[0][1], []
    for change_s in [*sorted(changes), 1e9]:
        while now_s < change_s:
            now_s = step(jobs, capacity, now_s, change_s)
        for time_s, rate in rates:
            capacity = rate if time_s == change_s else capacity
        if change_s in sample_s:
            sent = sum(job.sent_bytes for job in jobs)
            ready = sum(job.ready_bytes(now_s) for job in jobs)
            samples.append((now_s, sent, ready - sent))
    return samples


class Rig:
    """The same jobs on a FairLink."""

    def __init__(
        self, jobs: list[Job], rates: list[tuple[float, float]], sample_s: list[float]
    ) -> None:
        self.events = Events()
        self.link = FairLink(self.events, rates[0][1])
        self.jobs = jobs
        self.flows: dict[int, Flow] = {}
        self.ended_s: dict[int, float] = {}
        self.samples: list[Sample] = []
        for time_s, rate in rates[1:]:
            self.events.at(time_s, self.link.set_capacity, rate)
        for index, job in enumerate(jobs):
            self.events.at(job.opened_s, self._open, index)
            if job.produce_s:
                self.events.at(job.released_s, self._release, index)
            if job.cancel_s < NEVER:
                self.events.at(job.cancel_s, self._cancel, index)
        for time_s in sample_s:
            self.events.at(time_s, self._sample)
        self.events.run(NEVER)

    def _open(self, index: int) -> None:
        job = self.jobs[index]
        self.flows[index] = self.link.open(
            job.size_bytes, self._end, index, weight=job.weight, produced_per_s=job.cap
        )

    def _release(self, index: int) -> None:
        if not self.flows[index].closed:
            self.link.release(self.flows[index])

    def _cancel(self, index: int) -> None:
        self.link.cancel(self.flows[index])

    def _end(self, index: int) -> None:
        assert index not in self.ended_s
        self.ended_s[index] = self.events.now_s

    def _sample(self, _: None) -> None:
        self.samples.append((self.events.now_s, *self.link.reading()))


TIMES = st.floats(0, 60).map(lambda value: round(value, 3))
JOBS = st.builds(
    Job,
    opened_s=TIMES,
    size_bytes=st.sampled_from([1.0, 1e3, 1e6]) | st.floats(1, 1e6),
    weight=st.sampled_from([1.0, 1.0, 2.0, 0.5]),
    produce_s=st.sampled_from([0.0, 0.0, 1.0, 5.0, 20.0]),
    early=st.sampled_from([0.5, 0.9, 56 / 57]),
    cancel_s=st.just(NEVER),
)
RATES = st.sampled_from([0.0, 1e3, 1e4, 1e5, 1e6])


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[Job], list[tuple[float, float]]]:
    jobs = draw(st.lists(JOBS, min_size=1, max_size=12))
    for job in jobs:
        if draw(st.booleans()) and draw(st.booleans()):
            job.cancel_s = job.opened_s + draw(st.floats(0.001, 20))
    rates = [(0.0, draw(RATES))]
    rates += [(draw(TIMES) + 0.0005, draw(RATES)) for _ in range(draw(st.integers(0, 4)))]
    rates.append((70.0, 1e6))
    return jobs, sorted(rates, key=lambda change: change[0])


@given(scenes())
@settings(max_examples=400, deadline=None)
def test_flows_end_when_water_filling_says(
    scene: tuple[list[Job], list[tuple[float, float]]],
) -> None:
    jobs, rates = scene
    sample_s = [0.00025 + 1.25 * number for number in range(80)]
    expected = reference(jobs, rates, sample_s)
    rig = Rig(jobs, rates, sample_s)
    for index, job in enumerate(jobs):
        if abs(job.ended_s - job.cancel_s) < 1e-6:
            continue  # which of the two comes first is a matter of rounding
        if job.ended_s < job.cancel_s:
            assert rig.ended_s[index] == pytest.approx(job.ended_s, rel=1e-6, abs=1e-6)
        else:
            assert index not in rig.ended_s
    for (_, sent, backlog), (_, link_sent, link_backlog) in zip(expected, rig.samples, strict=True):
        total = sum(job.size_bytes for job in jobs)
        assert link_sent == pytest.approx(sent, rel=1e-6, abs=1e-6 * total)
        assert link_backlog >= 0
        assert link_backlog == pytest.approx(backlog, rel=1e-6, abs=1e-6 * total)
    assert rig.link.flows == 0
    assert rig.link.reading()[1] <= 1e-6 * sum(job.size_bytes for job in jobs)


def run_jobs(jobs: list[Job], rate: float) -> Rig:
    return Rig(jobs, [(0.0, rate)], [])


def plain(opened_s: float, size_bytes: float, weight: float = 1.0) -> Job:
    return Job(opened_s, size_bytes, weight, 0.0, 0.0, NEVER)


def test_a_flow_alone_takes_its_size_over_the_rate() -> None:
    assert run_jobs([plain(2.0, 5e6)], 1e6).ended_s == {0: pytest.approx(7.0)}


def test_two_equal_flows_halve_the_link() -> None:
    assert run_jobs([plain(0, 1e6), plain(0, 1e6)], 1e6).ended_s == {
        0: pytest.approx(2.0),
        1: pytest.approx(2.0),
    }


def test_twice_the_weight_is_twice_the_rate() -> None:
    rig = run_jobs([plain(0, 2e6, 2.0), plain(0, 1e6)], 1e6)
    assert rig.ended_s == {0: pytest.approx(3.0), 1: pytest.approx(3.0)}


def test_a_late_flow_shares_from_when_it_comes() -> None:
    # Alone for 1 s, then half the link: 1 MB + 2 s * 0.5 MB/s; the other has 1 MB left then.
    rig = run_jobs([plain(0, 2e6), plain(1, 2e6)], 1e6)
    assert rig.ended_s == {0: pytest.approx(3.0), 1: pytest.approx(4.0)}


def test_a_flow_as_slow_as_its_production_ends_a_last_layer_after_it() -> None:
    # 57 layers in 10 s on a fast link: the last layer is all that is left at the end.
    job = Job(0, 57e6, 1.0, 10.0, 56 / 57, NEVER)
    assert run_jobs([job], 100e6).ended_s == {0: pytest.approx(10 + 1e6 / 100e6)}


def test_what_production_leaves_free_goes_to_others() -> None:
    slow = Job(0, 1e6, 1.0, 10.0, 0.5, NEVER)  # at 50 kB/s for 10 s
    rig = run_jobs([slow, plain(0, 1.9e6)], 1e6)
    assert rig.ended_s[1] == pytest.approx(2.0)


def test_an_outage_delays_by_its_length() -> None:
    rig = Rig([plain(0, 2e6)], [(0.0, 1e6), (1.0, 0.0), (4.0, 1e6)], [2.0])
    assert rig.ended_s == {0: pytest.approx(5.0)}
    assert rig.samples == [(2.0, pytest.approx(1e6), pytest.approx(1e6))]


def test_a_cancelled_flow_makes_room() -> None:
    gone = plain(0, 5e6)
    gone.cancel_s = 2.0
    rig = run_jobs([gone, plain(0, 2e6)], 1e6)
    assert rig.ended_s == {1: pytest.approx(3.0)}
    assert rig.link.reading()[0] == pytest.approx(3e6)


def test_cancelling_twice_or_after_the_end_does_nothing() -> None:
    rig = run_jobs([plain(0, 1e6)], 1e6)
    rig.link.cancel(rig.flows[0])
    rig.link.cancel(rig.flows[0])
    assert rig.link.flows == 0
    assert rig.link.reading()[0] == pytest.approx(1e6)


def test_ends_stay_exact_late_in_a_long_run() -> None:
    # 300,000 s at 1 GB/s: sums of bytes are near 1e15, where a float's step is 0.1 byte.
    jobs = [plain(number * 1.0, 0.9e9) for number in range(3000)]
    for number, job in enumerate(jobs):
        job.opened_s = number * 100.0
    rig = run_jobs(jobs, 1e9)
    for number, job in enumerate(jobs):
        assert rig.ended_s[number] - job.opened_s == pytest.approx(0.9, rel=1e-6)


def test_heaps_stay_within_a_few_entries_per_flow() -> None:
    events = Events()
    link = FairLink(events, 1e6)
    flows = [link.open(1e12, lambda _: None, produced_per_s=1.0 + n) for n in range(10)]
    for round_number in range(20_000):
        events.now_s += 1e-3
        link.set_capacity(1e6 if round_number % 2 else 5.0)
        link.cancel(flows.pop(0))
        flows.append(link.open(1e12, lambda _: None, produced_per_s=1.0 + round_number % 10))
    assert link.flows == 10
    sizes = [len(heap) for heap in (link._capped, link._shared, link._ends)]
    assert max(sizes) < 64 * 12
