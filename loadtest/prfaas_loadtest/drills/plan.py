"""From a drill and a seed to all that will be done and when: the same every time."""

import fnmatch
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from prfaas.errors import ConfigError
from prfaas.workload.arrivals import Poisson
from prfaas_loadtest.drills.fault import LOAD_FAULTS, Fault, FaultKind
from prfaas_loadtest.drills.spec import MOST_REQUESTS, Drill, Load

#: Token ids of prompts: within the vocabulary of every model that is served here.
_TOKENS = (8, 500)
#: Lengths are spread evenly by so much around those asked for.
_SPREAD = 0.1
#: Between these a client gives up, as likely at each order of magnitude: in all stages.
_PATIENCE_S = (0.005, 1.0)


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request: when it is sent, in seconds after the load's begin, and what it asks.

    `prompt_seed` is what the prompt's tokens follow from. `abandon_after_s`: the client hangs up so
    long after it sent the request; 0: it does not.
    """

    number: int
    at_s: float
    prompt_seed: int
    prompt_tokens: int
    is_long: bool
    is_stream: bool
    output_tokens: int
    abandon_after_s: float = 0.0

    def prompt(self) -> list[int]:
        """Return the prompt's token ids; no two requests of a plan share a prefix."""
        rng = np.random.default_rng(self.prompt_seed)
        tokens: list[int] = rng.integers(*_TOKENS, self.prompt_tokens).tolist()
        return tokens


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """Everything that a run of a drill does, in order of time."""

    drill: Drill
    seed: int
    requests: tuple[PlannedRequest, ...]
    faults: tuple[Fault, ...]

    @property
    def digest(self) -> str:
        """What tells two plans apart."""
        whole = json.dumps([*map(asdict, self.requests), *map(asdict, self.faults)])
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    @property
    def first_fault_s(self) -> float:
        """When things begin to break."""
        return min(fault.at_s for fault in self.drill.faults)

    @property
    def last_fault_s(self) -> float:
        """When nothing is broken any more, but for what needs its time to come back."""
        return max(fault.end_s for fault in self.drill.faults)


def make_plan(drill: Drill, *, seed: int, targets: Sequence[str]) -> DrillPlan:
    """Return the plan; `targets` are the processes there are.

    Raises:
        ConfigError: a fault's target is none of them.
    """
    rng = np.random.default_rng([seed, zlib.crc32(drill.name.encode())])
    requests = tuple(_requests(drill, rng))
    faults = [
        part
        for fault in drill.faults
        if fault.kind not in LOAD_FAULTS
        for part in _parts(_aimed(fault, drill, targets, rng))
    ]
    return DrillPlan(drill, seed, requests, tuple(sorted(faults, key=lambda each: each.at_s)))


def probe(number: int, *, seed: int, load: Load, is_long: bool = True) -> PlannedRequest:
    """Return a request that asks whether all is as before; its prompt is nobody else's."""
    return PlannedRequest(
        number=-1 - number,
        at_s=0.0,
        prompt_seed=(seed << 32) + (1 << 31) + number,
        prompt_tokens=load.long_tokens if is_long else load.short_tokens,
        is_long=is_long,
        is_stream=False,
        output_tokens=2,
    )


def _requests(drill: Drill, rng: np.random.Generator) -> Iterator[PlannedRequest]:
    load = drill.load
    abandons = [fault for fault in drill.faults if fault.kind is FaultKind.ABANDON]
    for number, at_s in enumerate(_arrivals(drill, rng)):
        is_long = bool(rng.random() < load.long_share)
        middle = load.long_tokens if is_long else load.short_tokens
        tokens = max(1, round(middle * rng.uniform(1 - _SPREAD, 1 + _SPREAD)))
        share = max((f.value for f in abandons if f.at_s <= at_s < f.end_s), default=0.0)
        patience_s = float(np.exp(rng.uniform(*np.log(_PATIENCE_S))))
        if rng.random() >= share:
            patience_s = 0.0
        yield PlannedRequest(
            number=number,
            at_s=at_s,
            prompt_seed=int(rng.integers(1 << 31)) + (number << 33),
            prompt_tokens=tokens,
            is_long=is_long,
            is_stream=bool(rng.random() < load.stream_share),
            output_tokens=load.output_tokens,
            abandon_after_s=round(patience_s, 4),
        )


def _arrivals(drill: Drill, rng: np.random.Generator) -> list[float]:
    """Return when requests are sent: Poisson, and more of them in a surge."""
    load = drill.load
    times = _until(rng, load.requests_per_s, load.seconds)
    for fault in drill.faults:
        if fault.kind is FaultKind.SURGE:
            more = _until(rng, load.requests_per_s * (fault.value - 1), fault.seconds)
            times += [fault.at_s + at_s for at_s in more]
    if len(times) > MOST_REQUESTS:
        raise ConfigError(f"drill {drill.name}: allowed: at most {MOST_REQUESTS} requests")
    return [round(at_s, 4) for at_s in sorted(times)]


def _until(rng: np.random.Generator, rate_per_s: float, seconds: float) -> list[float]:
    count = int(rate_per_s * seconds * 2) + 20
    times: list[float] = Poisson(rate_per_s).times(rng, count).tolist()
    return [at_s for at_s in times if at_s < seconds]


def _aimed(fault: Fault, drill: Drill, targets: Sequence[str], rng: np.random.Generator) -> Fault:
    """Return the fault with one process in the place of a pattern."""
    if not fault.target:
        return fault
    named = "." in fault.target
    # A node's agent is meant only by who says so.
    found = sorted(n for n in fnmatch.filter(targets, fault.target) if ("." in n) == named)
    if not found:
        raise ConfigError(
            f"drill {drill.name}: target {fault.target!r}: allowed: {', '.join(targets)}"
        )
    return replace(fault, target=str(found[int(rng.integers(len(found)))]))


def _parts(fault: Fault) -> Iterator[Fault]:
    """Yield what a fault is made of: a flapping link is cut for half of each period."""
    if fault.kind is not FaultKind.FLAP:
        yield fault
        return
    at_s = fault.at_s
    while at_s < fault.end_s:
        seconds = min(fault.value / 2, fault.end_s - at_s)
        yield Fault(FaultKind.PARTITION, round(at_s, 4), seconds, way=fault.way)
        at_s += fault.value
