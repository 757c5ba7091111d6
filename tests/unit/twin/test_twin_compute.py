"""The twin's compute is the simulator's: same profile, same arrivals, same times."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from prfaas.blocks import HashedPrompt, PrefixIndex
from prfaas.profile.catalog import find_profile
from prfaas.profile.curve import constant, table
from prfaas.profile.instance import DecodeProfile
from prfaas.records import NodeRecord, Role
from prfaas.sim.cache import CacheDirectory, NodeCache
from prfaas.sim.decode import DecodeServer
from prfaas.sim.events import Events
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.prefill import PrefillServer
from prfaas.sim.request import SimRequest
from prfaas_twin.clock import VirtualClock
from prfaas_twin.decode_compute import DecodeCompute, Run
from prfaas_twin.prefill_compute import Part, PrefillCompute, PrefillJob, PrefillLimits

PROFILE = find_profile("paper-1t-h20")
END_S = 1e6


def arrivals(count: int, every_s: float, *, seed: int) -> list[tuple[float, int]]:
    """Return times and prompt lengths (log-normal, as the paper's)."""
    rng = random.Random(seed)
    at_s, found = 0.0, []
    for _ in range(count):
        at_s += rng.expovariate(1 / every_s)
        found.append((at_s, min(131072, max(128, int(rng.lognormvariate(9.9, 1.0))))))
    return found


def unique_prompt(number: int, tokens: int) -> HashedPrompt:
    return HashedPrompt.of(np.arange(number << 20, (number << 20) + tokens))


def sim_parts() -> tuple[NodeRecord, NodeCache, IndexedNodes]:
    directory = CacheDirectory()
    return (
        NodeRecord("n", Role.PREFILL, "a", "", ""),
        NodeCache(1e9, directory, stateful=False),
        IndexedNodes(directory),
    )


@dataclass
class Told:
    """What a prefill compute told its owner, and when."""

    clock: VirtualClock
    started_s: dict[PrefillJob, float] = field(default_factory=dict)
    done_s: dict[PrefillJob, float] = field(default_factory=dict)
    log: list[tuple[float, Part, int]] = field(default_factory=list)

    def started(self, job: PrefillJob) -> None:
        self.started_s[job] = self.clock.now_s

    def written(self, part: Part, layer: int) -> None:
        self.log.append((self.clock.now_s, part, layer))

    def done(self, job: PrefillJob) -> None:
        self.done_s[job] = self.clock.now_s


def twin_prefill(
    asked: list[tuple[float, HashedPrompt]],
    limits: PrefillLimits,
    cache: PrefixIndex | None = None,
    abort: tuple[float, int] | None = None,
) -> tuple[list[PrefillJob], Told]:
    clock = VirtualClock()
    told = Told(clock)
    cache = PrefixIndex() if cache is None else cache
    compute = PrefillCompute(clock, PROFILE.prefill_s, cache, limits, told)
    jobs = [PrefillJob(prompt) for _, prompt in asked]
    for (at_s, _), job in zip(asked, jobs, strict=True):
        clock.at(at_s, compute.submit, job)
    if abort:
        clock.at(abort[0], compute.abort, jobs[abort[1]])
    clock.run(END_S)
    assert compute.load().running == compute.load().waiting == 0
    return jobs, told


@pytest.mark.parametrize("batch_tokens", [0, 16384, 100_000])
def test_prefill_ends_when_the_simulators_does(batch_tokens: int) -> None:
    asked = arrivals(100, 3.0, seed=1)
    events = Events()
    record, cache, pool = sim_parts()
    expected: dict[int, float] = {}
    server = PrefillServer(
        record,
        events,
        PROFILE.prefill_s,
        cache,
        pool,
        batch_tokens=batch_tokens,
        on_start=lambda _request, _service_s: None,
        on_done=lambda request: expected.__setitem__(request.index, events.now_s),
    )
    server.recover()
    for index, (at_s, tokens) in enumerate(asked):
        request = SimRequest(index, tokens, 1, ())
        events.at(at_s, lambda r: (server.reserve(r), server.submit(r)), request)
    events.run(END_S)
    prompts = [(at_s, unique_prompt(i, tokens)) for i, (at_s, tokens) in enumerate(asked)]
    jobs, told = twin_prefill(prompts, PrefillLimits(batch_tokens=batch_tokens))
    assert [told.done_s[job] for job in jobs] == pytest.approx(
        [expected[index] for index in range(len(asked))], rel=1e-9
    )


def test_every_layer_of_every_token_is_written_once_and_in_order() -> None:
    limits = PrefillLimits(batch_tokens=20000, chunk_tokens=4096, layers=3)
    asked = [(0.0, unique_prompt(i, tokens)) for i, tokens in enumerate((9000, 500, 7000, 30000))]
    jobs, told = twin_prefill(asked, limits)
    for job in jobs:
        for layer in range(3):
            at = 0
            for when_s, part, which in told.log:
                if part.job is job and which == layer:
                    assert part.start == at
                    at = part.end
                    assert told.started_s[job] < when_s <= told.done_s[job]
            assert at == job.prompt.num_tokens
    times = [when_s for when_s, _, _ in told.log]
    assert times == sorted(times)
    last = [when_s for when_s, part, layer in told.log if part.is_last and layer == 2]
    assert last[1] < told.done_s[jobs[1]], "the first of a batch is written before its end"


def test_a_hit_is_not_computed_again() -> None:
    cache = PrefixIndex(stateful=True, checkpoint_tokens=1024)
    first, again = unique_prompt(1, 5000), unique_prompt(1, 5500)
    jobs, told = twin_prefill([(0.0, first), (100.0, again)], PrefillLimits(), cache)
    assert jobs[1].cached_tokens == 5000
    service_s = told.done_s[jobs[1]] - told.started_s[jobs[1]]
    assert service_s == pytest.approx(PROFILE.prefill_s.at(500))
    assert min(part.start for _, part, _ in told.log if part.job is jobs[1]) == 5000


def test_an_aborted_prompt_is_told_of_no_more_and_gives_its_place_to_the_next() -> None:
    asked = [(0.0, unique_prompt(i, 8192)) for i in range(3)]
    queued, told = twin_prefill(asked, PrefillLimits(batch_tokens=0), abort=(0.1, 1))
    assert queued[1] not in told.started_s
    assert told.done_s[queued[2]] == pytest.approx(2 * PROFILE.prefill_s.at(8192))
    running, told = twin_prefill(asked, PrefillLimits(batch_tokens=0), abort=(0.1, 0))
    assert running[0] not in told.done_s
    assert not [part for when_s, part, _ in told.log if part.job is running[0] and when_s > 0.1]
    assert told.done_s[running[2]] == pytest.approx(3 * PROFILE.prefill_s.at(8192))


def twin_decode(
    profile: DecodeProfile, asked: list[tuple[float, int]], slowness: float = 1.0
) -> tuple[list[list[float]], DecodeCompute]:
    """Return when each request's tokens came."""
    clock = VirtualClock()
    runs = [Run(tokens) for _, tokens in asked]
    times: dict[Run, list[float]] = {run: [] for run in runs}
    compute = DecodeCompute(clock, profile, lambda run: times[run].append(clock.now_s))
    compute.slowness = slowness
    for (at_s, _), run in zip(asked, runs, strict=True):
        clock.at(at_s, compute.admit, run)
    clock.run(END_S)
    return [times[run] for run in runs], compute


def test_decode_ends_when_the_simulators_does() -> None:
    """But for a step: the simulator lets requests in at once, engines between steps."""
    profile = DecodeProfile(table([(1, 0.010), (8, 0.020), (32, 0.060)]), max_batch=32)
    rng = random.Random(2)
    asked = [(at_s, rng.randint(50, 800)) for at_s, _ in arrivals(200, 1.0, seed=3)]
    events = Events()
    record, cache, pool = sim_parts()
    expected: dict[int, float] = {}
    server = DecodeServer(
        record,
        events,
        [0.0, *(profile.step_s.at(batch) for batch in range(1, 33))],
        cache,
        pool,
        on_first=lambda _request, _first_s: None,
        on_done=lambda request: expected.__setitem__(request.index, events.now_s),
    )
    server.recover()
    for index, (at_s, tokens) in enumerate(asked):
        request = SimRequest(index, 1, tokens, ())
        events.at(at_s, lambda r: (server.expect(), server.admit(r)), request)
    events.run(END_S)
    times, _ = twin_decode(profile, asked)
    for index, (at_s, tokens) in enumerate(asked):
        took_s, expected_s = times[index][-1] - at_s, expected[index] - at_s
        assert len(times[index]) == tokens
        assert took_s == pytest.approx(expected_s, rel=0.05, abs=0.1)
    mean_s = sum(each[-1] for each in times) / len(times)
    assert mean_s == pytest.approx(sum(expected.values()) / len(expected), rel=0.01)


def test_decode_makes_a_token_per_step_and_holds_no_more_than_its_batch() -> None:
    profile = DecodeProfile(constant(0.025), max_batch=2)
    times, compute = twin_decode(profile, [(0.0, 5), (0.0, 5), (0.0, 3)], slowness=2.0)
    assert times[0] == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])
    assert times[2] == pytest.approx([0.2, 0.25, 0.3])
    assert compute.load().tokens_total == 13


def test_a_run_that_is_aborted_in_a_callback_makes_no_more_tokens() -> None:
    clock = VirtualClock()
    runs = [Run(10), Run(10)]

    def on_tokens(run: Run) -> None:
        if run is runs[0] and run.made == 3:
            compute.abort(runs[1])

    compute = DecodeCompute(clock, DecodeProfile(constant(0.025), 8), on_tokens)
    for run in runs:
        compute.admit(run)
    clock.run(END_S)
    assert (runs[0].made, runs[1].made) == (10, 1)
