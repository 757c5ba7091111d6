"""What a link is set to while some faults of it hold at once. Pure."""

from collections.abc import Iterable
from typing import Any

from prfaas.errors import ConfigError
from prfaas_loadtest.drills.fault import Fault, FaultKind

Json = dict[str, Any]


def link_with(base: Json, faults: Iterable[Fault]) -> Json:
    """Return the link of a `Site` with faults: of several of one kind the worst counts.

    Raises:
        ConfigError: a fault is of a way that the link has not.

    >>> cut = Fault(FaultKind.PARTITION, 0.0, 1.0, way="a-b")
    >>> link_with({"a-b": {"loss": 0.0}, "b-a": {"loss": 0.0}}, [cut])
    {'a-b': {'loss': 1.0}, 'b-a': {'loss': 0.0}}
    """
    wanted = {way: dict(spec) for way, spec in base.items()}
    for fault in faults:
        if fault.way != "both" and fault.way not in wanted:
            raise ConfigError(f"way {fault.way!r}: allowed: both, {', '.join(wanted)}")
        for way in wanted if fault.way == "both" else [fault.way]:
            _worsen(wanted[way], base[way], fault)
    return wanted


def _worsen(spec: Json, base: Json, fault: Fault) -> None:
    match fault.kind:
        case FaultKind.PARTITION:
            spec["loss"] = 1.0
        case FaultKind.LOSS:
            spec["loss"] = max(spec["loss"], fault.value)
        case FaultKind.DELAY:
            spec["delay_s"] = max(spec["delay_s"], fault.value)
        case FaultKind.RATE:
            least = max(1000, int(base["rate_bits_per_s"] * fault.value))
            spec["rate_bits_per_s"] = min(spec["rate_bits_per_s"], least)
        case FaultKind.CORRUPT:
            spec["corruption"] = max(spec.get("corruption", 0.0), fault.value)
        case _:
            raise ConfigError(f"{fault.kind}: no fault of a link")
