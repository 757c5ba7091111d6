"""The long-term scheduler: from what is seen of the traffic to another threshold or one conversion.

Pure: whoever calls it keeps `Running` and carries out the `Revision`. The threshold may change at
any call; roles change one step at a time, with hysteresis, a cool-down and floors, and only where
queues and utilisations do not speak against what the model says.

Source: PrfaaS §3.4.3.
"""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.planning.grid import RateGrid, threshold_grid
from prfaas.planning.search import MOST_COMBINATIONS, Choice, choose, keeps_ttft
from prfaas.planning.site import Constraints, Site, TtftGoal
from prfaas.throughput import Demand, Expectation, split_at
from prfaas.workload.lengths import Lengths

Floats = NDArray[np.float64]

#: Prompts of millions of tokens must not make a search of minutes.
_MAX_THRESHOLDS = 10_000


@dataclass(frozen=True, slots=True)
class StageSeen:
    """One stage as seen: how long its queue takes to clear, and how busy its instances are."""

    queue_s: float = 0.0
    utilisation: float = 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of late. `lengths` is of uncached prompt tokens."""

    at_s: float
    arrival_rate_per_s: float
    lengths: Lengths
    output_tokens: float
    prfaas: StageSeen = field(default_factory=StageSeen)
    prefill: StageSeen = field(default_factory=StageSeen)
    decode: StageSeen = field(default_factory=StageSeen)


@dataclass(frozen=True, slots=True)
class Running:
    """What runs now. `changed_at_s` is when roles last changed; `n_prfaas` is per cluster."""

    threshold_tokens: int
    n_prfaas: tuple[int, ...]
    n_p: int
    n_d: int
    changed_at_s: float
    version: int


@dataclass(frozen=True, slots=True)
class Slo:
    """What must be kept: the time per output token and, where it can be, the bare TTFT."""

    tpot_s: float
    ttft: TtftGoal | None = None


@dataclass(frozen=True, slots=True)
class ReplanSettings:
    """When to change.

    `min_gain` is the relative gain in Lambda_max below which nothing changes; roles change only
    `cooldown_s` after they last did, by `max_moves_per_step` instances, and only if arrivals are at
    least `min_load` of what can be taken, or a queue takes longer than `queue_s`.
    """

    min_gain: float = 0.05
    cooldown_s: float = 300.0
    min_prefill: int = 1
    min_decode: int = 1
    max_moves_per_step: int = 1
    min_load: float = 0.5
    queue_s: float = 1.0
    threshold_step_tokens: int = 100

    def __post_init__(self) -> None:
        for key in ("min_gain", "cooldown_s", "min_load", "queue_s"):
            if not getattr(self, key) >= 0:
                raise ConfigError(f"{key} = {getattr(self, key)}: allowed: 0 or more")
        least = {"min_prefill": 0, "min_decode": 1, "max_moves_per_step": 1}
        for key, low in least.items():
            if getattr(self, key) < low:
                raise ConfigError(f"{key} = {getattr(self, key)}: allowed: {low} or more")


class RevisionReason(StrEnum):
    """Why something changes."""

    THRESHOLD = "threshold"
    """Another threshold lets more through."""
    TTFT = "ttft"
    """The threshold so far misses the TTFT; another keeps it and lets fewer through."""
    MORE_PREFILL = "more_prefill"
    """Prefill limits: decode instances become prefill."""
    MORE_DECODE = "more_decode"
    """Decode limits: prefill instances become decode."""


@dataclass(frozen=True, slots=True)
class Revision:
    """What to run instead. `lambda_before` and `lambda_after` are Lambda_max by the model."""

    threshold_tokens: int
    n_p: int
    n_d: int
    version: int
    reason: RevisionReason
    lambda_before: float
    lambda_after: float

    def applied_to(self, running: Running, *, at_s: float) -> Running:
        """Return what runs once the revision is carried out."""
        converted = (self.n_p, self.n_d) != (running.n_p, running.n_d)
        return replace(
            running,
            threshold_tokens=self.threshold_tokens,
            n_p=self.n_p,
            n_d=self.n_d,
            changed_at_s=at_s if converted else running.changed_at_s,
            version=self.version,
        )


def replan(
    running: Running,
    observation: Observation,
    site: Site,
    slo: Slo,
    settings: ReplanSettings | None = None,
) -> Revision | None:
    """Return what to change, or None.

    `site` gives the profiles and what the links give at present; the numbers of instances are
    those of `running`.
    """
    settings = settings or ReplanSettings()
    at_present = site.resized(running.n_prfaas, running.n_p + running.n_d)
    search = _Search(running, observation, at_present, slo, settings)
    before = search.rate_now()
    retuned = search.best(n_p=running.n_p, n_d=running.n_d)
    assert retuned is not None
    found = search.conversion(retuned)
    if found is None:
        worth_it = _gains(retuned.lambda_max, before, settings.min_gain)
        if not (worth_it or search.keeps_ttft_only_by(retuned)):
            return None
        found = retuned
    return Revision(
        threshold_tokens=found.threshold_tokens,
        n_p=found.n_p,
        n_d=found.n_d,
        version=running.version + 1,
        reason=_reason(running, found, before),
        lambda_before=before,
        lambda_after=found.lambda_max,
    )


@dataclass(frozen=True)
class _Search:
    running: Running
    observation: Observation
    site: Site
    slo: Slo
    settings: ReplanSettings

    @cached_property
    def _demand(self) -> Demand:
        seen = self.observation
        return Demand(seen.lengths, max(seen.output_tokens, 1.0), self.slo.tpot_s)

    @cached_property
    def _grid(self) -> RateGrid:
        """All thresholds, the present one too; what they cost is the same for all divisions."""
        lengths = self._demand.lengths
        step = Constraints(threshold_step_tokens=self._threshold_step())
        thresholds = np.union1d(threshold_grid(lengths, step), [self._threshold_now])
        return RateGrid(self.site, self._demand, split_at(lengths, thresholds, Expectation.EXACT))

    @property
    def _threshold_now(self) -> float:
        return float(self.running.threshold_tokens)

    def rate_now(self) -> float:
        """Return Lambda_max of what runs."""
        rates, _ = self._grid.rates_and_room([(self.running.n_p, self.running.n_d)])
        column = np.searchsorted(self._grid.parts.thresholds, self._threshold_now)
        return float(rates[0, column])

    def best(self, *, n_p: int | None = None, n_d: int | None = None) -> Choice | None:
        """Return the best choice, of the roles where they are given; None if floors allow none.

        A TTFT that cannot be kept is not asked for.
        """
        settings = self.settings
        held = Constraints(
            min_prefill=settings.min_prefill if n_p is None else 0,
            min_decode=settings.min_decode if n_d is None else 0,
            ttft=self.slo.ttft,
            n_p=n_p,
            n_d=n_d,
        )
        found = choose(self._grid, held)
        if found is None and held.ttft is not None:
            found = choose(self._grid, replace(held, ttft=None))
        return found

    def conversion(self, retuned: Choice) -> Choice | None:
        """Return the next step to the best roles, if they are worth it.

        No step on the way is one down: prefill never takes less with more instances, nor decode
        more with fewer, so that what lies between two roles is never below the lower of them.
        """
        if not self._may_convert(retuned):
            return None
        goal = self.best()
        if goal is None or not _gains(goal.lambda_max, retuned.lambda_max, self.settings.min_gain):
            return None
        moves = goal.n_p - self.running.n_p
        if self._spoken_against(moves):
            return None
        limit = self.settings.max_moves_per_step
        step = max(-limit, min(moves, limit))
        return self.best(n_p=self.running.n_p + step, n_d=self.running.n_d - step)

    def keeps_ttft_only_by(self, retuned: Choice) -> bool:
        """Return whether what runs misses the TTFT and the plan does not."""
        thresholds = np.array(
            [self.running.threshold_tokens, retuned.threshold_tokens], dtype=float
        )
        kept = keeps_ttft(self.site, self.observation.lengths, self.slo.ttft, thresholds)
        return bool(kept[1]) and not bool(kept[0])

    def _may_convert(self, retuned: Choice) -> bool:
        """Return whether roles may change at all now."""
        seen, settings = self.observation, self.settings
        if seen.at_s - self.running.changed_at_s < settings.cooldown_s:
            return False
        loaded = seen.arrival_rate_per_s >= settings.min_load * retuned.lambda_max
        queued = max(seen.prefill.queue_s, seen.decode.queue_s) > settings.queue_s
        return loaded or queued

    def _spoken_against(self, moves: int) -> bool:
        """Return whether the stage that would give instances is seen to need them more.

        The model may be wrong about this machine or this traffic; what is seen is not.
        """
        prefill, decode = self.observation.prefill, self.observation.decode
        giver, taker = (decode, prefill) if moves > 0 else (prefill, decode)
        longer = giver.queue_s > max(taker.queue_s, self.settings.queue_s)
        return longer and giver.utilisation >= taker.utilisation

    def _threshold_step(self) -> int:
        longest = float(self.observation.lengths.cells()[0][-1])
        divisions = self.site.pd.instances + 1
        most = max(min(_MAX_THRESHOLDS, MOST_COMBINATIONS // divisions), 1)
        return max(self.settings.threshold_step_tokens, math.ceil(longest / most))


def _gains(after: float, before: float, min_gain: float) -> bool:
    return after > before and after >= before * (1 + min_gain)


def _reason(running: Running, found: Choice, before: float) -> RevisionReason:
    if found.n_p == running.n_p:
        more = found.lambda_max > before
        return RevisionReason.THRESHOLD if more else RevisionReason.TTFT
    more = found.n_p > running.n_p
    return RevisionReason.MORE_PREFILL if more else RevisionReason.MORE_DECODE
