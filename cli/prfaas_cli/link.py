"""`prfaasctl link`: the emulated WAN link as configured and as measured, and how to change it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prfaas.errors import ConfigError
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

if TYPE_CHECKING:
    from prfaas_netem import Topology

app = typer.Typer(help="Show and change the emulated WAN link.", no_args_is_help=True)

_BURST_S = 0.5
#: TCP doubles its window once a round trip; a burst must be long against that to show the link.
_BURST_ROUND_TRIPS = 40
_BURST_LIMIT_S = 6.0


@app.command("show")
def show_link(
    measure: Annotated[bool, typer.Option(help="Measure round trip and rate as well.")] = True,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Show what the link is set to, what it has carried, and what it measures."""
    from prfaas_cli.output import Output
    from prfaas_netem import show

    place = Place.of(state_dir, name)
    place.require_deployment()
    document = show(place.link_socket)
    if measure:
        document["measured"] = _measure(_topology(place))
    Output(as_json=as_json).result(document, lambda: _lines(document))


@app.command("set")
def set_link(
    link: Annotated[str, typer.Argument(help="The two regions, as in a-b.")],
    rtt: Annotated[str | None, typer.Option(help="Round trip, as in 20ms.")] = None,
    delay: Annotated[str | None, typer.Option(help="One-way delay, as in 10ms.")] = None,
    rate: Annotated[str | None, typer.Option(help="Rate, as in 10gbit.")] = None,
    loss: Annotated[str | None, typer.Option(help="Share of lost packets, as in 2%.")] = None,
    jitter: Annotated[str | None, typer.Option(help="Spread of the delay, as in 1ms.")] = None,
    one_way: Annotated[
        bool, typer.Option("--one-way", help="Only from the first region to the second.")
    ] = False,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Change the link while it runs. Without --one-way the change outlives the emulator."""
    from prfaas_cli.output import Output
    from prfaas_netem import LinkSpec

    changes = {"rtt": rtt, "delay": delay, "rate": rate, "loss": loss, "jitter": jitter}
    if all(value is None for value in changes.values()):
        raise ConfigError("link set: nothing to set; give --rtt, --delay, --rate, --loss, --jitter")
    LinkSpec.default().changed(**changes)
    place = Place.of(state_dir, name)
    place.require_deployment()
    topology = _topology(place)
    source, target = _ends(link, topology)
    document = _apply(place, topology, changes, source=source, target=target, one_way=one_way)
    Output(as_json=as_json).result(document, lambda: _lines(document))


def _apply(
    place: Place,
    topology: "Topology",
    changes: dict[str, str | None],
    *,
    source: str,
    target: str,
    one_way: bool,
) -> dict[str, Any]:
    """Change each way from what it is now; they may differ."""
    from dataclasses import replace

    from prfaas_netem import LinkSpec, set_link, show

    now = {
        (way["from"], way["to"]): LinkSpec.from_json(way["spec"])
        for way in show(place.link_socket)["directions"]
    }
    ways = [(source, target)] if one_way else [(source, target), (target, source)]
    wanted = {way: now[way].changed(**changes) for way in ways}
    for (begin, end), spec in wanted.items():
        document = set_link(place.link_socket, spec, source=begin, target=end)
    if not one_way:
        replace(topology, link=wanted[source, target]).save(place.topology_file)
    return document


def _topology(place: Place) -> "Topology":
    from prfaas_netem import Topology

    return Topology.load(place.topology_file)


def _ends(link: str, topology: "Topology") -> tuple[str, str]:
    first, second = topology.regions
    for source, target in ((first, second), (second, first)):
        if link == f"{source}-{target}":
            return source, target
    raise ConfigError(f"link {link!r}: allowed: {first}-{second} or {second}-{first}")


def _measure(topology: "Topology") -> list[dict[str, Any]]:
    from prfaas_netem import measure_rate, measure_rtt

    first, second = topology.regions
    measured = []
    for source, target in ((first, second), (second, first)):
        rtt = measure_rtt(topology, source=source, target=target, count=5)
        burst_s = min(max(_BURST_S, _BURST_ROUND_TRIPS * rtt.median_s), _BURST_LIMIT_S)
        rate = measure_rate(topology, source=source, target=target, seconds=burst_s)
        measured.append(
            {
                "from": source,
                "to": target,
                "rtt_s": None if rtt.lost == rtt.sent else rtt.median_s,
                "rate_bits_per_s": rate.bits_per_s,
                "burst_bytes": rate.received_bytes,
            }
        )
    return measured


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from prfaas.units import format_duration, format_rate
    from prfaas_cli.output import shown_bytes
    from prfaas_netem import LinkSpec

    yield f"backend {document['backend']}, mode {document['mode']}"
    for way in document["directions"]:
        yield f"{way['from']} -> {way['to']}: {LinkSpec.from_json(way['spec'])} (configured)"
        yield f"    carried {shown_bytes(way['bytes'])} in {way['packets']} packets,"
        drops = ", ".join(f"{cause} {count}" for cause, count in way["drops"].items() if count)
        yield f"    dropped: {drops or 'none'}"
    for way in document.get("measured", []):
        rtt = "lost" if way["rtt_s"] is None else format_duration(way["rtt_s"])
        rate = format_rate(way["rate_bits_per_s"])
        yield f"{way['from']} -> {way['to']}: round trip {rtt}, one stream {rate} (measured)"
