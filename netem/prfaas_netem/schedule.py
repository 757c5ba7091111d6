"""How one direction of a link changes over time. Pure: the time comes in."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from prfaas.errors import ConfigError
from prfaas_netem.link_spec import LinkSpec

MAX_STEPS = 1000
_LONGEST_S = 7 * 86_400.0


@dataclass(frozen=True)
class Step:
    """From `at_s` on, the direction is like this."""

    at_s: float
    spec: LinkSpec


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Steps in the order of time; before the first one the direction is as it was described.

    Times are seconds since the emulator started; with `period_s` all begins anew after that long.

    Raises: ConfigError when the steps are out of order, or out of bounds.
    """

    steps: tuple[Step, ...]
    period_s: float | None = None

    def __post_init__(self) -> None:
        times = [step.at_s for step in self.steps]
        if not 1 <= len(times) <= MAX_STEPS:
            raise ConfigError(f"schedule: {len(times)} steps; allowed: 1 to {MAX_STEPS}")
        if not all(0 <= at_s <= _LONGEST_S for at_s in times):
            raise ConfigError("schedule: a step's time is out of range; allowed: 0s to 7 days")
        if times != sorted(set(times)):
            raise ConfigError("schedule: allowed: each step later than the one before")
        if self.period_s is not None and not times[-1] < self.period_s <= _LONGEST_S:
            raise ConfigError(
                f"schedule: period {self.period_s:g} s; allowed: longer than the last step's time,"
                f" {times[-1]:g} s"
            )

    def spec_at(self, time_s: float, base: LinkSpec) -> LinkSpec:
        """Return what the direction is like at a time; `base` before the first step."""
        passed = self._passed(self._within(time_s))
        return self.steps[passed - 1].spec if passed else base

    def next_change_s(self, time_s: float) -> float | None:
        """Return when it changes next; None when it never does again."""
        within_s = self._within(time_s)
        passed = self._passed(within_s)
        if passed < len(self.steps):
            return time_s - within_s + self.steps[passed].at_s
        return None if self.period_s is None else time_s - within_s + self.period_s

    def mapped(self, change: Callable[[LinkSpec], LinkSpec], *, stretch: float) -> "Schedule":
        """Return the schedule with all specs changed and all times stretched."""
        steps = tuple(Step(step.at_s * stretch, change(step.spec)) for step in self.steps)
        period_s = None if self.period_s is None else self.period_s * stretch
        return replace(self, steps=steps, period_s=period_s)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        steps = [{"at_s": step.at_s, "spec": step.spec.to_json()} for step in self.steps]
        return {"steps": steps, "period_s": self.period_s}

    @classmethod
    def from_json(cls, value: object) -> "Schedule":
        """Return what `to_json` gave.

        Raises: ConfigError on anything else.
        """
        if not isinstance(value, Mapping) or set(value) != {"steps", "period_s"}:
            raise ConfigError("schedule: allowed: an object with steps and period_s")
        try:
            steps = tuple(
                Step(float(step["at_s"]), LinkSpec.from_json(step["spec"]))
                for step in value["steps"]
            )
            period_s = None if value["period_s"] is None else float(value["period_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError("schedule: allowed: steps of at_s and spec") from error
        return cls(steps=steps, period_s=period_s)

    def _within(self, time_s: float) -> float:
        return time_s if self.period_s is None else time_s % self.period_s

    def _passed(self, within_s: float) -> int:
        return bisect_right([step.at_s for step in self.steps], within_s)
