"""What a person asks of `simulate`, as text: processes of arrivals, and faults."""

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prfaas.errors import ConfigError
from prfaas.sim.scenario import Deployment, Fault, FaultKind
from prfaas.workload import Arrivals, Deterministic, Diurnal, GammaBursts, OnOff, Poisson

_KINDS: dict[str, tuple[Callable[..., Arrivals], tuple[str, ...]]] = {
    "poisson": (Poisson, ()),
    "deterministic": (Deterministic, ()),
    "gamma": (GammaBursts, ("CV",)),
    "onoff": (OnOff, ("ON", "OFF", "FACTOR")),
    "diurnal": (Diurnal, ("PERIOD", "AMPLITUDE")),
}
ARRIVALS = ", ".join(
    f"{kind}:{','.join(names)}" if names else kind for kind, (_, names) in _KINDS.items()
)

_FAULTS = {"kill": FaultKind.KILL, "slow": FaultKind.SLOW, "link": FaultKind.LINK_RATE}
_FAULT = re.compile(r"(kill|slow|link):([^=@\s]+)(?:=([^@\s]+))?@([^-\s]+)(?:-(\S*))?")
FAULTS = "kill:NODE@FROM-UNTIL, slow:NODE=TIMES@FROM-UNTIL, link:CLUSTER=SHARE@FROM-UNTIL (seconds)"


@dataclass(frozen=True, slots=True)
class ArrivalSpec:
    """A process of arrivals whose rate is still open.

    >>> ArrivalSpec.parse("gamma:3").at(2.0)
    GammaBursts(rate_per_s=2.0, cv=3.0)
    """

    text: str
    kind: str
    numbers: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> "ArrivalSpec":
        """Return what the text says.

        Raises:
            ConfigError: naming the option and what is allowed.
        """
        kind, _, rest = text.partition(":")
        parts = rest.split(",") if rest else []
        if kind not in _KINDS or len(parts) != len(_KINDS[kind][1]):
            raise ConfigError(f"--arrivals {text!r}: allowed: {ARRIVALS}")
        numbers = tuple(_number(part, f"--arrivals {text!r}") for part in parts)
        return cls(text, kind, numbers)

    def at(self, rate_per_s: float) -> Arrivals:
        """Return the process at a rate.

        Raises:
            ConfigError: the process cannot be.
        """
        try:
            return _KINDS[self.kind][0](rate_per_s, *self.numbers)
        except ConfigError as error:
            raise ConfigError(f"--arrivals {self.text!r}: {error}") from None


POISSON = ArrivalSpec("poisson", "poisson", ())


def parse_fault(text: str) -> Fault:
    """Return the fault that the text says.

    >>> parse_fault("link:prfaas=0.1@600-900").value
    0.1

    Raises:
        ConfigError: naming the option and what is allowed.
    """
    found = _FAULT.fullmatch(text)
    if found is None or (found[1] == "kill") is not (found[3] is None):
        raise ConfigError(f"--fault {text!r}: allowed: {FAULTS}")
    option = f"--fault {text!r}"
    value = _number(found[3], option) if found[3] else 0.0
    if found[1] == "link" and value > 1:
        raise ConfigError(f"{option}: SHARE = {value:g}: allowed: 0 to 1 of the link's rate")
    until_s = _number(found[5], option) if found[5] else math.inf
    try:
        return Fault(_number(found[4], option), until_s, _FAULTS[found[1]], found[2], value)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None


def targets_of(deployment: Deployment) -> set[str]:
    """Return the names of all that can fail."""
    return _nodes_of(deployment) | _links_of(deployment)


def check_targets(faults: Iterable[Fault], deployments: Sequence[Deployment]) -> None:
    """Refuse a fault that would meet nothing in any of the deployments.

    Raises:
        ConfigError: naming the target and what there is of its kind.
    """
    nodes = set[str]().union(*map(_nodes_of, deployments))
    links = set[str]().union(*map(_links_of, deployments))
    for fault in faults:
        known, what = (links, "cluster") if fault.kind is FaultKind.LINK_RATE else (nodes, "node")
        if fault.target not in known:
            allowed = _pools(known) if known is nodes else ", ".join(sorted(known))
            raise ConfigError(
                f"--fault: {fault.target!r}: no such {what}: allowed: {allowed or 'none'}"
            )


def missed_by(faults: Iterable[Fault], deployment: Deployment) -> list[str]:
    """Return the targets of the faults that meet nothing in this deployment."""
    return sorted({fault.target for fault in faults} - targets_of(deployment))


def _nodes_of(deployment: Deployment) -> set[str]:
    pd = deployment.pd
    counts = {
        f"{pd.name}-prefill": pd.prefill,
        f"{pd.name}-decode": pd.decode,
        **{f"{remote.name}-prefill": remote.instances for remote in deployment.remotes},
    }
    return {f"{name}-{index}" for name, count in counts.items() for index in range(count)}


def _links_of(deployment: Deployment) -> set[str]:
    return {remote.name for remote in deployment.remotes}


def _pools(nodes: Iterable[str]) -> str:
    """Return the nodes of each pool in short.

    >>> _pools(["pd-decode-0", "pd-prefill-0", "pd-prefill-1"])
    'pd-decode-0, pd-prefill-0 to 1'
    """
    highest: dict[str, int] = {}
    for pool, _, index in (node.rpartition("-") for node in nodes):
        highest[pool] = max(highest.get(pool, 0), int(index))
    return ", ".join(
        f"{pool}-0 to {last}" if last else f"{pool}-0" for pool, last in sorted(highest.items())
    )


def replay_command(options: Mapping[str, object]) -> str:
    """Return the command line of these options, less those that are None, False or empty.

    >>> replay_command({"--seed": 1, "--load": None, "--policy": ["naive", "prfaas"]})
    'prfaasctl simulate --seed 1 --policy naive --policy prfaas'
    """
    words = ["prfaasctl", "simulate"]
    for option, value in options.items():
        values = value if isinstance(value, list) else [value]
        for each in values:
            words += [option] if each is True else [option, str(each)] if _given(each) else []
    return shlex.join(words)


def _given(value: object) -> bool:
    return value is not None and value is not False


def positive(value: float, option: str) -> float:
    """Return a number that must be finite and above 0.

    Raises:
        ConfigError: naming the option.
    """
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{option} {value:g}: allowed: a finite number above 0")
    return value


def _number(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"{option}: {text!r} is not a number") from None
    if not math.isfinite(value):
        raise ConfigError(f"{option}: {text!r}: allowed: finite numbers")
    return value
