"""The faults that a drill may inject: a closed list, and what each needs to be told."""

from dataclasses import dataclass
from enum import StrEnum

from prfaas.errors import ConfigError
from prfaas.planning.case_table import NOT_NEGATIVE, POSITIVE, SHARE, Rule, Table


class FaultKind(StrEnum):
    """What goes wrong."""

    LOSS = "loss"
    DELAY = "delay"
    RATE = "rate"
    CORRUPT = "corrupt"
    PARTITION = "partition"
    FLAP = "flap"
    KILL = "kill"
    STOP = "stop"
    RESTART = "restart"
    SLOW = "slow"
    HANG = "hang"
    STRANGERS = "strangers"
    FILL_DISK = "fill_disk"
    CLOCK_STEP = "clock_step"
    SWITCH_ROLE = "switch_role"
    ABANDON = "abandon"
    SURGE = "surge"


LINK_FAULTS = frozenset(
    {FaultKind.LOSS, FaultKind.DELAY, FaultKind.RATE, FaultKind.CORRUPT, FaultKind.PARTITION}
)
#: Faults of the clients: they change what is sent, not the site.
LOAD_FAULTS = frozenset({FaultKind.ABANDON, FaultKind.SURGE})
#: Faults that are over as soon as they are done; what they broke comes back by itself.
SUDDEN = frozenset({FaultKind.KILL, FaultKind.RESTART, FaultKind.SWITCH_ROLE})

_CORRUPT_SHARE = Rule(lambda value: 0 < value <= 0.5, "a number above 0, up to 0.5")
_FACTOR = Rule(lambda value: 1 < value <= 1e4, "a number above 1, up to 10000")
_STEP = Rule(
    lambda value: value != 0 and abs(value) <= 1e8, "seconds, not 0, up to 10^8 either way"
)
#: What the number of a fault means, where it has one: key and rule.
_NUMBERS: dict[FaultKind, tuple[str, Rule]] = {
    FaultKind.LOSS: ("share", SHARE),
    FaultKind.DELAY: ("delay_s", POSITIVE),
    FaultKind.RATE: ("share", SHARE),
    FaultKind.CORRUPT: ("share", _CORRUPT_SHARE),
    FaultKind.FLAP: ("period_s", POSITIVE),
    FaultKind.SLOW: ("factor", _FACTOR),
    FaultKind.CLOCK_STEP: ("step_s", _STEP),
    FaultKind.ABANDON: ("share", SHARE),
    FaultKind.SURGE: ("factor", _FACTOR),
}
_TARGETED = frozenset(
    {
        *(FaultKind.KILL, FaultKind.STOP, FaultKind.RESTART, FaultKind.SLOW, FaultKind.HANG),
        *(FaultKind.STRANGERS, FaultKind.CLOCK_STEP, FaultKind.SWITCH_ROLE),
    }
)
FAULT_KEYS = (
    *("kind", "at_s", "seconds", "way", "target"),
    *("share", "delay_s", "period_s", "factor", "step_s"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `at_s` is seconds after the load's begin; it lasts `seconds`, 0 if it is sudden.

    `value` is the number that its kind takes: a share, seconds of delay, a period, a factor.
    `way` is `both` or `<source>-<target>`; `target` a process, in which `*` stands for any text.
    """

    kind: FaultKind
    at_s: float
    seconds: float = 0.0
    value: float = 0.0
    way: str = "both"
    target: str = ""

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.at_s + self.seconds

    @property
    def words(self) -> str:
        """The fault for people, without its times."""
        name, _ = _NUMBERS.get(self.kind, ("", None))
        parts = [str(self.kind).replace("_", " "), self.target]
        if self.kind in LINK_FAULTS or self.kind is FaultKind.FLAP:
            parts.append("of the link" if self.way == "both" else f"of the link {self.way}")
        if name:
            parts.append(f"({name.removesuffix('_s')} {self.value:g}{' s' * name.endswith('_s')})")
        return " ".join(part for part in parts if part)


def parse_fault(row: Table, *, load_s: float) -> Fault:
    """Read one `[[fault]]`.

    Raises:
        ConfigError: naming file, key, value and what is allowed.
    """
    try:
        kind = FaultKind(row.text("kind"))
    except ValueError:
        row.refuse("kind", ", ".join(FaultKind))
    at_s = row.number("at_s", NOT_NEGATIVE)
    seconds = 0.0 if kind in SUDDEN else row.number("seconds", POSITIVE)
    if at_s + seconds > load_s:
        raise ConfigError(
            f"{row.name('at_s')} = {at_s:g}: the fault must be over by the load's end, {load_s:g} s"
        )
    name, rule = _NUMBERS.get(kind, ("", POSITIVE))
    needed = {"kind", "at_s", *([name] if name else ())}
    needed |= {"seconds"} if kind not in SUDDEN else set()
    needed |= {"target"} if kind in _TARGETED else set()
    may = {"way"} if kind in LINK_FAULTS or kind is FaultKind.FLAP else set()
    for key in FAULT_KEYS:
        if key in row and key not in needed | may:
            row.refuse(key, f"nothing; a fault {kind} takes {', '.join(sorted(needed | may))}")
    return Fault(
        kind,
        at_s,
        seconds,
        value=row.number(name, rule) if name else 0.0,
        way=row.text("way", "both"),
        target=row.text("target") if kind in _TARGETED else "",
    )
