"""`prfaasctl trace`: what a recorded workload looks like, and what of it is worth offloading."""

from pathlib import Path
from typing import Annotated

import typer

from prfaas_cli.place import JsonOption

app = typer.Typer(help="Look at a trace of requests.", no_args_is_help=True)

FileArgument = Annotated[
    Path, typer.Argument(help="Mooncake JSONL, Azure CSV or our own JSONL; may be gzip.")
]


@app.command("show")
def show(
    file: FileArgument,
    cache_blocks: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Capacity of a bounded cache in blocks; may be repeated."),
    ] = None,
    state_blocks: Annotated[
        int, typer.Option(min=0, max=1 << 20, help="Blocks that one kept state takes up.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show rates, lengths and prefix hit rates of a trace."""
    from prfaas_cli.output import Output
    from prfaas_cli.trace_file import read_trace
    from prfaas_cli.trace_show import DEFAULT_CACHE_BLOCKS, show_document, show_lines

    trace = read_trace(file)
    document = show_document(trace, cache_blocks or DEFAULT_CACHE_BLOCKS, state_blocks)
    Output(as_json=as_json).result(document, lambda: show_lines(document))


@app.command("offload")
def offload(
    file: FileArgument,
    local: Annotated[
        str, typer.Option(help="Profile of a local instance, name or file.")
    ] = "paper-1t-h20",
    remote: Annotated[str, typer.Option(help="Profile of a remote one.")] = "paper-1t-h200",
    link: Annotated[str, typer.Option(help="Rate of the link, as in 100gbit.")] = "100gbit",
    rtt: Annotated[str, typer.Option(help="Round trip, as in 20ms.")] = "20ms",
    pipelined: Annotated[
        bool, typer.Option("--pipelined", help="Layers are sent while later ones are computed.")
    ] = False,
    local_instances: Annotated[
        int, typer.Option(min=2, max=10_000, help="Local instances of the plan.")
    ] = 8,
    remote_instances: Annotated[
        int, typer.Option(min=1, max=10_000, help="Remote instances of the plan.")
    ] = 4,
    tpot: Annotated[str, typer.Option(help="Time per output token to keep.")] = "25ms",
    as_json: JsonOption = False,
) -> None:
    """Show what share of a trace is worth offloading, with and without its prefix hits."""
    from prfaas.units import ROUND_TRIP, parse_duration, parse_rate
    from prfaas.workload.offload_share import Route
    from prfaas_cli.output import Output
    from prfaas_cli.profile_files import load_profile
    from prfaas_cli.trace_file import read_trace
    from prfaas_cli.trace_offload import Fleet, check_tpot, offload_document, offload_lines

    profiles = load_profile(local).profile, load_profile(remote).profile
    rate_bits = parse_rate(link, option="--link")
    rtt_s = parse_duration(rtt, option="--rtt", bounds=ROUND_TRIP)
    route = Route(*profiles, rate_bits / 8, rtt_s, pipelined)
    tpot_s = parse_duration(tpot, option="--tpot")
    check_tpot(route.local, tpot_s)
    fleet = Fleet(local_instances, remote_instances, tpot_s)
    document = offload_document(read_trace(file), route, fleet)
    Output(as_json=as_json).result(document, lambda: offload_lines(document))
