"""One workload of a campaign: a tenant's lengths, arrivals, answers and shared prefixes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.planning.case_table import NOT_NEGATIVE, Rule, Table
from prfaas.sim.generate import ConstantOutput, GeometricOutput, Outputs
from prfaas.workload import (
    Arrivals,
    Conversations,
    Deterministic,
    Diurnal,
    EmpiricalLengths,
    GammaBursts,
    Lengths,
    OnOff,
    Poisson,
    Replay,
    Sharing,
    SystemPrefixes,
    Trace,
    TruncatedLogNormal,
)

KEYS = (
    "tenant", "rate_per_s", "arrivals", "lengths", "trace", "draw", "output_tokens", "outputs",
    "sharing",
)  # fmt: skip
_LENGTHS = ("mu", "sigma", "low", "high", "tokens")
_ARRIVALS = (
    "process", "cv", "on_s", "off_s", "burst_factor", "period_s", "amplitude", "speed",
)  # fmt: skip
_SHARING = ("kind", "tokens", "zipf", "mean_turns", "active", "max_tokens", "think_s")
_AT_LEAST_1 = Rule(lambda value: value >= 1, "a number, 1 or more")


class Draw(StrEnum):
    """How lengths are drawn from their distribution."""

    RANDOM = "random"
    """Independently, as users come."""
    STRATIFIED = "stratified"
    """One from each of as many equal shares as there are requests, in random order: few requests
    then have the distribution's own mean, and runs differ by their queues alone."""


class Process(StrEnum):
    """A process of arrivals."""

    POISSON = "poisson"
    EVEN = "even"
    GAMMA = "gamma"
    ON_OFF = "onoff"
    DIURNAL = "diurnal"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Stratified:
    """A distribution of which a sample has one length from each of equal shares.

    >>> drawn = Stratified(EmpiricalLengths([10, 20, 30, 40])).sample(np.random.default_rng(1), 4)
    >>> sorted(drawn.tolist())
    [10, 20, 30, 40]
    """

    lengths: Lengths

    def above(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P(L > t)."""
        return self.lengths.above(t)

    def sum_above(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return E[L; L > t]."""
        return self.lengths.sum_above(t)

    def cells(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return representative lengths, increasing, and their weights."""
        return self.lengths.cells()

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths in whole tokens, 1 at least, in random order."""
        values, weights = self.lengths.cells()
        shares = (np.arange(count) + 0.5) / count
        index = np.searchsorted(np.cumsum(weights), shares * (1 - 1e-12))
        picked = values[np.minimum(index, len(values) - 1)]
        whole = np.maximum(np.rint(rng.permutation(picked)), 1)
        return np.asarray(whole, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Workload:
    """What one tenant asks for.

    Either `lengths` or `trace` is set. `rate_per_s` is the mean rate of all its requests, in real
    seconds. With `think_s` > 0 later turns of a conversation are no part of `arrivals`: each comes
    so long (in the mean, exponentially) after the turn before was answered.
    """

    tenant: str
    rate_per_s: float
    arrivals: Arrivals
    lengths: Lengths | None
    trace: Trace | None
    outputs: Outputs | None
    sharing: Sharing | None
    think_s: float = 0.0


def trace_file(table: Table) -> str | None:
    """Return the trace that a workload names, for its reader to read."""
    return table.text("trace") if "trace" in table else None


def parse_workload(table: Table, trace: Trace | None) -> Workload:
    """Read a workload's table; `trace` is what `trace_file` names.

    Raises:
        ConfigError: one line, naming file, key, value and what is allowed.
    """
    if "trace" in table and "lengths" in table:
        table.refuse("trace", "either a trace or lengths, not both")
    arrivals, rate_per_s = _arrivals(table, trace)
    sharing, think_s = _sharing(table)
    if trace is not None and sharing is not None:
        table.refuse("sharing", "only with lengths; a trace says itself what is shared")
    if trace is not None and "draw" in table:
        table.refuse("draw", "only with lengths")
    return Workload(
        tenant=table.text("tenant", "default"),
        rate_per_s=rate_per_s,
        arrivals=arrivals,
        lengths=None if trace is not None else _lengths(table),
        trace=trace,
        outputs=_outputs(table, trace),
        sharing=sharing,
        think_s=think_s,
    )


def _arrivals(table: Table, trace: Trace | None) -> tuple[Arrivals, float]:
    rows = table.table("arrivals", allowed=_ARRIVALS)
    usual = Process.POISSON if trace is None else Process.REPLAY
    name = rows.text("process", usual)
    if name not in list(Process):
        rows.refuse("process", ", ".join(Process))
    process = Process(name)
    _refuse_others(rows, ("process", *_TAKES[process]), _ARRIVALS, process)
    try:
        if process is Process.REPLAY:
            return _replayed(table, rows, trace)
        rate_per_s = table.number("rate_per_s")
        return _MAKERS[process](rate_per_s, rows), rate_per_s
    except ConfigError as error:
        if str(error).startswith(table.name("")):
            raise
        raise ConfigError(f"{table.name('arrivals')}: {error}") from None


def _replayed(table: Table, rows: Table, trace: Trace | None) -> tuple[Arrivals, float]:
    if trace is None:
        rows.refuse("process", "replay only with a trace")
    if "rate_per_s" in table:
        table.refuse("rate_per_s", "not with replay; speed sets the rate")
    speed = rows.number("speed", default=1.0)
    return Replay(trace.arrival_s, speed), trace.rate_per_s * speed


_TAKES: dict[Process, tuple[str, ...]] = {
    Process.POISSON: (),
    Process.EVEN: (),
    Process.GAMMA: ("cv",),
    Process.ON_OFF: ("on_s", "off_s", "burst_factor"),
    Process.DIURNAL: ("period_s", "amplitude"),
    Process.REPLAY: ("speed",),
}


def _refuse_others(rows: Table, takes: tuple[str, ...], keys: tuple[str, ...], what: str) -> None:
    """Refuse keys that `what` would ignore: who wrote them believes that they say something."""
    for key in keys:
        if key in rows and key not in takes:
            words = ", ".join(takes[1:])
            rows.refuse(key, f"nothing; {what} takes {words or 'no more'}")


_MAKERS: dict[Process, Callable[[float, Table], Arrivals]] = {
    Process.POISSON: lambda rate, _: Poisson(rate),
    Process.EVEN: lambda rate, _: Deterministic(rate),
    Process.GAMMA: lambda rate, rows: GammaBursts(rate, rows.number("cv")),
    Process.ON_OFF: lambda rate, rows: OnOff(
        rate, rows.number("on_s"), rows.number("off_s"), rows.number("burst_factor")
    ),
    Process.DIURNAL: lambda rate, rows: Diurnal(
        rate, rows.number("period_s"), rows.number("amplitude", NOT_NEGATIVE)
    ),
}


def _lengths(table: Table) -> Lengths:
    table.value("lengths")
    rows = table.table("lengths", allowed=_LENGTHS)
    lengths: Lengths
    try:
        if "tokens" in rows:
            _refuse_others(rows, ("", "tokens"), _LENGTHS, "tokens, all alike,")
            lengths = EmpiricalLengths([rows.whole("tokens", least=1)])
        else:
            mu, sigma = rows.number("mu"), rows.number("sigma")
            lengths = TruncatedLogNormal(mu, sigma, rows.number("low"), rows.number("high"))
    except ConfigError as error:
        if str(error).startswith(rows.name("")):
            raise
        raise ConfigError(f"{table.name('lengths')}: {error}") from None
    draw = table.text("draw", Draw.RANDOM)
    if draw not in list(Draw):
        table.refuse("draw", ", ".join(Draw))
    return Stratified(lengths) if draw == Draw.STRATIFIED else lengths


def _outputs(table: Table, trace: Trace | None) -> Outputs | None:
    """Return how long answers are; None: as the trace has it."""
    kind = table.text("outputs", "constant")
    if kind not in ("constant", "geometric"):
        table.refuse("outputs", "constant, geometric")
    if trace is not None and "output_tokens" not in table:
        return None
    tokens = table.number("output_tokens", _AT_LEAST_1)
    return GeometricOutput(tokens) if kind == "geometric" else ConstantOutput(tokens)


def _sharing(table: Table) -> tuple[Sharing | None, float]:
    if "sharing" not in table:
        return None, 0.0
    rows = table.table("sharing", allowed=_SHARING)
    kind = rows.text("kind")
    try:
        if kind == "system":
            _refuse_others(rows, ("kind", "tokens", "zipf"), _SHARING, kind)
            return _system(rows), 0.0
        if kind == "conversations":
            if "zipf" in rows and "tokens" not in rows:
                rows.refuse("zipf", "only with tokens")
            start = _system(rows) if "tokens" in rows else None
            made = Conversations(
                rows.number("mean_turns", _AT_LEAST_1),
                rows.whole("active", least=1),
                rows.whole("max_tokens", least=1, default=262_144),
                start,
            )
            return made, rows.number("think_s", NOT_NEGATIVE, 0.0)
    except ConfigError as error:
        if str(error).startswith(rows.name("")):
            raise
        raise ConfigError(f"{table.name('sharing')}: {error}") from None
    return rows.refuse("kind", "system, conversations")


def _system(rows: Table) -> SystemPrefixes:
    tokens = rows.value("tokens")
    if not isinstance(tokens, list) or not all(type(count) is int for count in tokens):
        rows.refuse("tokens", "a list of whole numbers")
    return SystemPrefixes(tuple(tokens), rows.number("zipf", NOT_NEGATIVE, 1.0))
