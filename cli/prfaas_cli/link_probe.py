"""`prfaasctl link probe`: measure the links and compare them with what they are set to."""

from collections.abc import Iterator
from itertools import permutations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prfaas_cli.link_ways import chosen_ways, topology_now
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

if TYPE_CHECKING:
    from prfaas_netem import WayProbe

_OFF = 1


def probe_link(
    link: Annotated[
        str | None, typer.Argument(help="One link, as in a-b; without it, all of them.")
    ] = None,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> int:
    """Measure delay, jitter, loss and rate; exit with 1 where they are not as set."""
    from prfaas_cli.output import Output
    from prfaas_netem import Topology, probe_way, show

    place = Place.of(state_dir, name)
    place.require_emulated()
    shown = show(place.link_socket)
    topology = topology_now(Topology.load(place.topology_file), shown)
    ways = list(permutations(topology.regions, 2)) if link is None else chosen_ways(link, topology)
    output = Output(as_json=as_json)
    probes = []
    for source, target in ways:
        output.step(f"measuring {source} -> {target}")
        probes.append(probe_way(topology, source=source, target=target))
    document = {
        "backend": shown["backend"],
        "as_set": all(probe.is_as_set for probe in probes),
        "ways": [probe.to_json() for probe in probes],
    }
    output.result(document, lambda: _lines(str(shown["backend"]), probes))
    return 0 if document["as_set"] else _OFF


def _lines(backend: str, probes: "list[WayProbe]") -> Iterator[str]:
    from prfaas_cli.output import table

    yield f"backend {backend}"
    rows = [["way", "quantity", "set", "measured", "allowed", "verdict"]]
    for probe in probes:
        way = f"{probe.source} -> {probe.target}"
        for check in probe.checks:
            values = [check.set, check.measured, check.low, check.high]
            wanted, measured, low, high = (_shown(check.quantity, value) for value in values)
            rows.append(
                [way, check.quantity, wanted, measured, f"{low} to {high}", str(check.verdict)]
            )
    yield from table(rows)
    if any(_is_short(probe.to_json()) for probe in probes):
        yield "not reached: one TCP stream on this machine cannot show that rate"


def _is_short(probe: dict[str, Any]) -> bool:
    return any(check["verdict"] == "not reached" for check in probe["checks"])


def _shown(quantity: str, value: float) -> str:
    from prfaas.units import format_duration, format_rate

    if quantity == "rate":
        return format_rate(value)
    if quantity in ("round trip", "delay", "spread"):
        return format_duration(value)
    return f"{value:.2%}"
