"""Policies side by side: each contender of a case runs over requests drawn by the same seed."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prfaas.errors import ConfigError
from prfaas.planning import Case
from prfaas.sim.digest import digest
from prfaas.sim.generate import ConstantOutput, generate, replay
from prfaas.sim.policies.contender import (
    CONTENDERS,
    Contender,
    DeploymentSettings,
    make_contender,
)
from prfaas.sim.policies.dual import DualTimescalePolicy
from prfaas.sim.policy import Policy
from prfaas.sim.record import Columns, columns_of
from prfaas.sim.scenario import CacheSpec, Fault, Workload
from prfaas.sim.summary import Slo, Summary, summarise
from prfaas.sim.usage import LinkLog, LinkWatch
from prfaas.sim.world import World
from prfaas.throughput import Demand, Expectation
from prfaas.workload import Reuse, Trace, prefix_hits
from prfaas_cli.simulation_options import POISSON, ArrivalSpec, targets_of

#: The TTFT to keep where neither the case nor an option says one: the bare P90 of the paper's
#: homogeneous baseline is 9.73 s.
DEFAULT_TTFT_S = 10.0

#: Over the arrivals the links are read so many times: ten times per bin of the series.
_PARTS = 1200
#: A run that does not end by itself (a link that stays dead) is ended after so many times the span
#: of its arrivals, and an hour.
_MOST_SPANS = 20

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Question:
    """What is simulated. Either `rate_per_s` for all, or `load`, a share of each one's Lambda_max;
    with a trace neither, but its `speed`."""

    case: Case
    policies: tuple[str, ...] = CONTENDERS
    arrivals: ArrivalSpec = POISSON
    load: float = 0.8
    rate_per_s: float | None = None
    trace: Trace | None = None
    speed: float = 1.0
    requests: int | None = 20_000
    seed: int = 1
    rtt_s: float = 0.020
    layers: int = 57
    cache_tokens: int = 0
    own_caches: bool = False
    ttft_s: float | None = None
    faults: tuple[Fault, ...] = ()
    expectation: Expectation = Expectation.EXACT

    @property
    def slo(self) -> Slo:
        """What a request must keep."""
        goal = self.case.constraints.ttft
        ttft_s = self.ttft_s or (goal.seconds if goal else DEFAULT_TTFT_S)
        return Slo(ttft_s, self.case.demand.tpot_s)


@dataclass(frozen=True, slots=True)
class Replanned:
    """What re-planning did, and what was in force at the end."""

    revisions: int
    conversions: int
    threshold_tokens: int
    n_p: int
    n_d: int


@dataclass(frozen=True, slots=True)
class Run:
    """One contender's run. `cpu_s` is processor time, `rate_per_s` what was meant to arrive."""

    contender: Contender
    rate_per_s: float
    summary: Summary
    digest: str
    cpu_s: float
    replanned: Replanned | None = None

    @property
    def overloaded(self) -> bool:
        """Whether more came, in the time that is measured, than the equations say it takes."""
        return self.summary.offered_per_s > self.contender.lambda_max

    @property
    def instances(self) -> dict[str, int]:
        """Return the instances of each cluster."""
        deployment = self.contender.deployment
        pd = deployment.pd
        remotes = {remote.name: remote.instances for remote in deployment.remotes}
        return {**remotes, pd.name: pd.prefill + pd.decode}

    def cost_per_hour(self, prices: Mapping[str, float]) -> float | None:
        """Return the price of all instances; None if one's hardware has none."""
        deployment = self.contender.deployment
        profiles = [remote.profile for remote in deployment.remotes] + [deployment.pd.profile]
        counts = zip(profiles, self.instances.values(), strict=True)
        used = [(profile.hardware, count) for profile, count in counts if count]
        if any(hardware not in prices for hardware, _ in used):
            return None
        return sum(prices[hardware] * count for hardware, count in used)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All runs of a question."""

    question: Question
    runs: tuple[Run, ...]

    @property
    def digest(self) -> str:
        """A name for all that was simulated; the same question gives the same."""
        joined = " ".join(f"{run.contender.name}={run.digest}" for run in self.runs)
        return hashlib.blake2b(joined.encode(), digest_size=8).hexdigest()


def contenders_of(question: Question, note: Callable[[str], None]) -> list[Contender]:
    """Return the contenders; of all, those that the case has a deployment for.

    Raises:
        ConfigError: one that was asked for by name cannot be.
    """
    case, settings = _case_of(question), _settings_of(question)
    found, left_out = [], []
    for name in question.policies:
        try:
            found.append(make_contender(name, case, settings))
        except ConfigError as error:
            if question.policies != CONTENDERS:
                raise
            left_out.append(error)
    if not found:
        raise left_out[0]
    for reason in left_out:
        note(f"left out: {reason}")
    return found


def compare(
    question: Question, contenders: Sequence[Contender], progress: Progress
) -> Iterator[Run]:
    """Run one contender after the other."""
    for contender in contenders:
        yield run(question, contender, progress)


def run(question: Question, contender: Contender, progress: Progress) -> Run:
    """Run one contender over the question's requests."""
    workload = workload_of(question, contender)
    known = targets_of(contender.deployment)
    faults = tuple(fault for fault in question.faults if fault.target in known)
    began_s = time.process_time()
    policy = contender.make_policy()
    world = World(contender.deployment, workload, policy, faults=faults)
    columns, links, until_s = _run(world, lambda share: progress(contender.name, share))
    cpu_s = time.process_time() - began_s
    summary = summarise(
        columns, contender.deployment, slo=question.slo, links=links, until_s=until_s
    )
    return Run(
        contender,
        rate_of(question, contender),
        summary,
        digest(columns),
        cpu_s,
        _replanned(policy, world),
    )


def _replanned(policy: Policy, world: World) -> Replanned | None:
    if not isinstance(policy, DualTimescalePolicy):
        return None
    now = policy.running
    return Replanned(policy.revisions, world.conversions, now.threshold_tokens, now.n_p, now.n_d)


def rate_of(question: Question, contender: Contender) -> float:
    """Return the requests per second that come in the mean."""
    if question.trace is not None:
        return question.trace.rate_per_s * question.speed
    if question.rate_per_s is not None:
        return question.rate_per_s
    return question.load * contender.lambda_max


def workload_of(question: Question, contender: Contender) -> Workload:
    """Return the requests of a contender's run; contenders differ at most in the rate."""
    if question.trace is not None:
        chains = question.cache_tokens > 0
        return replay(question.trace, speed=question.speed, count=question.requests, chains=chains)
    return generate(
        question.case.demand.lengths,
        question.arrivals.at(rate_of(question, contender)),
        ConstantOutput(question.case.demand.output_tokens),
        count=question.requests or 1,
        seed=question.seed,
    )


def _run(world: World, progress: Callable[[float], None]) -> tuple[Columns, LinkLog, float]:
    """Run a world to its end; return columns, what links sent and, if it has no end, its stop."""
    watch = LinkWatch({name: r.egress for name, r in world.remotes.items() if r.egress is not None})
    last_s = float(world.workload.arrival_s[-1])
    for part in range(_PARTS):
        until_s = last_s * (part + 1) / _PARTS
        if part:
            world.events.run(until_s)
        else:
            world.run(until_s)
        watch.read(until_s)
        progress((part + 1) / _PARTS)
    most_s = last_s * _MOST_SPANS + 3600.0
    ended = world.ended == len(world.workload.arrival_s)
    for until_s in np.linspace(last_s, most_s, _PARTS * _MOST_SPANS)[1:]:
        if ended:
            break
        ended = world.events.run(float(until_s)) or world.ended == len(world.workload.arrival_s)
        watch.read(world.events.now_s)
    return columns_of(world.record, world.workload), watch.log(), math.inf if ended else most_s


def _case_of(question: Question) -> Case:
    """Return the case, planned for the trace where there is one."""
    trace = question.trace
    if trace is None:
        return question.case
    cached = question.cache_tokens > 0 and trace.block_tokens > 0
    lengths = prefix_hits(trace, Reuse.HYBRID).lengths if cached else trace.prompt_lengths
    output_tokens = max(float(trace.output_tokens.mean()), 1.0)
    demand = Demand(lengths, output_tokens, question.case.demand.tpot_s)
    return replace(question.case, demand=demand)


def _settings_of(question: Question) -> DeploymentSettings:
    return DeploymentSettings(
        rtt_s=question.rtt_s,
        layers=question.layers,
        cache=CacheSpec(question.cache_tokens, shared=not question.own_caches),
        ttft_s=question.slo.ttft_s,
        expectation=question.expectation,
    )
