"""`prfaasctl link`: the emulated WAN links, as configured and as measured; how to change them."""

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prfaas.errors import ConfigError
from prfaas_cli.link_probe import probe_link
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
    from prfaas_netem import LinkSpec, LinkText, Topology

app = typer.Typer(help="Show, measure and change the emulated WAN link.", no_args_is_help=True)
app.command("probe")(probe_link)

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
    from prfaas_netem import Topology, show

    place = Place.of(state_dir, name)
    place.require_emulated()
    document = show(place.link_socket)
    if measure:
        document["measured"] = _measure(Topology.load(place.topology_file))
    Output(as_json=as_json).result(document, lambda: _lines(document))


@app.command("set")
def set_link(
    link: Annotated[str, typer.Argument(help="The two regions, as in a-b.")],
    preset: Annotated[
        str | None,
        typer.Option(help="A link by name: metro, cross-region, transatlantic, lossy."),
    ] = None,
    rtt: Annotated[str | None, typer.Option(help="Round trip, as in 20ms.")] = None,
    delay: Annotated[str | None, typer.Option(help="One-way delay, as in 10ms.")] = None,
    rate: Annotated[str | None, typer.Option(help="Rate, as in 10gbit.")] = None,
    jitter: Annotated[str | None, typer.Option(help="Spread of the delay, as in 1ms.")] = None,
    jitter_distribution: Annotated[
        str | None, typer.Option(help="uniform, normal, pareto or paretonormal.")
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Share of lost packets, as in 2%.")] = None,
    loss_correlation: Annotated[
        str | None, typer.Option(help="How much neighbours share that fate, as in 25%.")
    ] = None,
    burst_loss: Annotated[
        str | None,
        typer.Option(help="Loss in bursts: enter,leave[,loss in it[,loss else]]; or none."),
    ] = None,
    corruption: Annotated[
        str | None, typer.Option(help="Share of packets with a wrong bit, as in 0.1%.")
    ] = None,
    duplication: Annotated[
        str | None, typer.Option(help="Share of packets that arrive twice, as in 0.1%.")
    ] = None,
    reordering: Annotated[
        str | None, typer.Option(help="Share of packets that skip the delay, as in 0.1%.")
    ] = None,
    one_way: Annotated[
        bool, typer.Option("--one-way", help="Only from the first region to the second.")
    ] = False,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Change a link while it runs. It stays so, also where the link had a schedule."""
    from prfaas_cli.output import Output
    from prfaas_netem import LinkText, parse_options
    from prfaas_netem import preset as find_preset

    changes = LinkText(
        rate=rate,
        rtt=rtt,
        delay=delay,
        jitter=jitter,
        jitter_distribution=jitter_distribution,
        loss=loss,
        loss_correlation=loss_correlation,
        burst_loss=burst_loss,
        corruption=corruption,
        duplication=duplication,
        reordering=reordering,
    )
    if preset is None and all(value is None for value in changes.values()):
        raise ConfigError("link set: nothing to set; give --rtt, --rate, --loss or another option")
    base = None if preset is None else find_preset(preset)
    parse_options(**changes)
    place = Place.of(state_dir, name)
    place.require_emulated()
    document = _apply(place, link, changes, base=base, one_way=one_way)
    Output(as_json=as_json).result(document, lambda: _lines(document))


def _apply(
    place: Place, link: str, changes: "LinkText", *, base: "LinkSpec | None", one_way: bool
) -> dict[str, Any]:
    """Change each way from what it is now, or from `base`; they may differ."""
    from prfaas_netem import Topology, Way, set_link, show

    topology = Topology.load(place.topology_file)
    now = topology_now(topology, show(place.link_socket))
    ways = chosen_ways(link, topology)
    wanted = [
        Way(source, target, (base or now.way(source, target).spec).changed(**changes))
        for source, target in (ways[:1] if one_way else ways)
    ]
    for way in wanted:
        document = set_link(place.link_socket, way.spec, source=way.source, target=way.target)
    topology.with_ways(*wanted).save(place.topology_file)
    return document


def _measure(topology: "Topology") -> list[dict[str, Any]]:
    from prfaas_netem import measure_rate, measure_rtt

    measured = []
    for first, second in combinations(topology.regions, 2):
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
        if way["schedule"] is not None:
            yield f"    follows a schedule of {way['schedule']['steps']} steps"
        yield f"    carried {shown_bytes(way['bytes'])} in {way['packets']} packets,"
        yield f"    dropped: {_counts(way['drops'])}"
        if any(way["harmed"].values()):
            yield f"    {_counts(way['harmed'])}"
    for way in document.get("measured", []):
        rtt = "lost" if way["rtt_s"] is None else format_duration(way["rtt_s"])
        rate = format_rate(way["rate_bits_per_s"])
        yield f"{way['from']} -> {way['to']}: round trip {rtt}, one stream {rate} (measured)"


def _counts(counters: dict[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counters.items() if count) or "none"
