"""`prfaasctl simulate`: a case in virtual time, one policy beside the other."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prfaas.errors import ConfigError
from prfaas_cli.place import JsonOption
from prfaas_cli.plan import Mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prfaas.planning import Case
    from prfaas.workload import Trace
    from prfaas_cli.output import Output
    from prfaas_cli.simulation import Comparison, Question

_DEFAULT_REQUESTS = 20_000
#: Progress is told this often at most, and not at all by runs that are done before.
_TELL_EVERY_S = 2.0


def simulate(
    case: Annotated[
        str, typer.Option(help="A case: paper, or a TOML file of your site.", metavar="CASE")
    ] = "paper",
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy to run; may be repeated. All by default.", metavar="NAME"),
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            help="poisson (the default), deterministic, gamma:CV, onoff:ON,OFF,FACTOR (seconds),"
            " diurnal:PERIOD,AMPLITUDE.",
            metavar="PROCESS",
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Replay a trace in place of --arrivals.", metavar="FILE")
    ] = None,
    speed: Annotated[
        float | None, typer.Option(help="Replay so many times as fast as recorded.")
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(help="Share of each policy's own Lambda_max; 0.8 where nothing is said."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second, the same for all.")
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(help=f"How many; {_DEFAULT_REQUESTS}, or the whole trace.", metavar="N"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 1,
    rtt: Annotated[str, typer.Option(help="Round trip of the links.")] = "20ms",
    layers: Annotated[
        int, typer.Option(help="Layers whose KV cache is sent one by one; 1 sends all at the end.")
    ] = 57,
    cache_tokens: Annotated[
        int, typer.Option(help="Room for prefixes per node; only with a trace.", metavar="N")
    ] = 0,
    own_caches: Annotated[
        bool,
        typer.Option("--own-caches", help="Each node has a cache of its own, not each cluster."),
    ] = False,
    ttft: Annotated[
        float | None,
        typer.Option(help="TTFT to keep, seconds; the case's, or 10.", metavar="SECONDS"),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="kill:NODE@600-900, slow:NODE=3@600-900, link:CLUSTER=0.1@600-900 (seconds);"
            " may be repeated.",
            metavar="FAULT",
        ),
    ] = None,
    expectation: Annotated[
        Mean,
        typer.Option(help="What plans take a time to be: exact, or as plan's own default, mean."),
    ] = Mean.EXACT,
    threshold: Annotated[
        int | None,
        typer.Option(min=0, help="Threshold (tokens) of prfaas, at first, and of threshold."),
    ] = None,
    n_p: Annotated[
        int | None, typer.Option("--n-p", min=0, help="Their local prefill instances.")
    ] = None,
    n_d: Annotated[int | None, typer.Option("--n-d", min=1, help="Their decode instances.")] = None,
    link: Annotated[
        str | None, typer.Option(help="Give every link this rate, as in 10gbit.", metavar="RATE")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page with plots, .html.", metavar="FILE")
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Only print the tables of docs/simulation-tables.md.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate a case under one or more policies: latencies, goodput, how full each stage is."""
    from prfaas.sim.policies.contender import CONTENDERS
    from prfaas.throughput import Expectation
    from prfaas.units import parse_duration
    from prfaas_cli.cases import PAPER, load_case
    from prfaas_cli.output import Output
    from prfaas_cli.simulation import Question
    from prfaas_cli.simulation_options import ArrivalSpec, parse_fault, positive, replay_command
    from prfaas_cli.trace_file import read_trace

    output = Output(as_json=as_json)
    if tables:
        _print_tables(output)
        return
    given = {"--arrivals": arrivals, "--load": load, "--rate": rate}
    _check_together(given, trace=trace, speed=speed, cache_tokens=cache_tokens)
    _check_report(report)
    recorded = None if trace is None else read_trace(trace)
    question = Question(
        case=_changed(load_case(case), link, threshold_tokens=threshold, n_p=n_p, n_d=n_d),
        policies=tuple(dict.fromkeys(policy or CONTENDERS)),
        arrivals=ArrivalSpec.parse(arrivals or "poisson"),
        load=positive(0.8 if load is None else load, "--load"),
        rate_per_s=None if rate is None else positive(rate, "--rate"),
        trace=recorded,
        speed=positive(1.0 if speed is None else speed, "--speed"),
        requests=_count(requests, recorded),
        seed=seed,
        rtt_s=parse_duration(rtt, option="--rtt"),
        layers=layers,
        cache_tokens=cache_tokens,
        own_caches=own_caches,
        ttft_s=None if ttft is None else positive(ttft, "--ttft"),
        faults=tuple(map(parse_fault, fault or ())),
        expectation=Expectation(expectation.value),
    )
    options = {
        "--case": case if case == PAPER else Path(case).absolute(),
        "--policy": policy,
        "--arrivals": arrivals,
        "--trace": trace and trace.absolute(),
        "--speed": speed,
        "--load": load,
        "--rate": rate,
        "--requests": question.requests,
        "--seed": seed,
        "--rtt": rtt,
        "--layers": layers,
        "--cache-tokens": cache_tokens or None,
        "--own-caches": own_caches,
        "--ttft": ttft,
        "--fault": fault,
        "--expectation": expectation.value,
        "--threshold": threshold,
        "--n-p": n_p,
        "--n-d": n_d,
        "--link": link,
    }
    _answer(question, output, report, replay_command(options))


def _changed(case: "Case", link: str | None, **fixed: int | None) -> "Case":
    """Return the case with its plan and its links as asked, as `plan` takes them."""
    from prfaas.units import parse_rate
    from prfaas_cli.plan_study import with_fixed, with_links

    changed = with_fixed(case, **fixed)
    return changed if link is None else with_links(changed, parse_rate(link, option="--link") / 8)


def _check_report(report: Path | None) -> None:
    if report is None:
        return
    if report.suffix.lower() != ".html":
        raise ConfigError(f"--report {report}: allowed: a file ending in .html")
    if not report.parent.is_dir():
        raise ConfigError(f"--report {report}: allowed: a folder that exists, not {report.parent}")


def _check_together(
    given: "Mapping[str, object]", *, trace: Path | None, speed: float | None, cache_tokens: int
) -> None:
    if given["--load"] is not None and given["--rate"] is not None:
        raise ConfigError("--load, --rate: allowed: one of them")
    for option, value in given.items():
        if trace is not None and value is not None:
            raise ConfigError(f"{option}: not with --trace; --speed sets its rate")
    if cache_tokens < 0:
        raise ConfigError(f"--cache-tokens {cache_tokens}: allowed: 0 or more")
    if trace is None and cache_tokens:
        raise ConfigError("--cache-tokens: only with --trace: generated prompts share no prefix")
    if trace is None and speed is not None:
        raise ConfigError("--speed: only with --trace")


def _count(requests: int | None, trace: "Trace | None") -> int | None:
    from prfaas.sim.generate import MAX_REQUESTS

    if requests is not None and not 1 <= requests <= MAX_REQUESTS:
        raise ConfigError(f"--requests {requests}: allowed: 1 to {MAX_REQUESTS}")
    return requests if requests is not None or trace is not None else _DEFAULT_REQUESTS


def _answer(question: "Question", output: "Output", report: Path | None, command: str) -> None:
    from prfaas_cli.simulation import Comparison, compare, contenders_of
    from prfaas_cli.simulation_document import document_of
    from prfaas_cli.simulation_lines import lines_of
    from prfaas_cli.simulation_options import check_targets, missed_by

    contenders = contenders_of(question, output.note)
    check_targets(question.faults, [contender.deployment for contender in contenders])
    for contender in contenders:
        for target in missed_by(question.faults, contender.deployment):
            output.note(f"{contender.name} has no {target}: that fault does not meet it")
    runs = tuple(compare(question, contenders, _teller(output)))
    found = Comparison(question, runs)
    if report is not None:
        if output.elapsed_s > _TELL_EVERY_S:
            output.step(f"drawing {report}")
        _write_report(found, report, command)
        output.note(f"wrote {report}")
    output.result(document_of(found), lambda: lines_of(found))


def _write_report(found: "Comparison", path: Path, command: str) -> None:
    from prfaas_cli.profile_files import write_whole
    from prfaas_cli.simulation_report import page

    try:
        write_whole(path, page(found, command).encode())
    except OSError as error:
        raise ConfigError(f"--report {path}: {error.strerror or error}") from None


def _print_tables(output: "Output") -> None:
    from prfaas_cli.simulation_tables import markdown, study

    found = study(_teller(output))
    output.result({"cells": [cell.to_json() for cell in found]}, lambda: markdown(found))


def _teller(output: "Output") -> "Callable[[str, float], None]":
    """Return what tells how far a run is, when it takes a while."""
    told_s = time.monotonic()

    def tell(name: str, share: float) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= _TELL_EVERY_S:
            told_s = time.monotonic()
            output.step(f"{name}: {share:.0%} of the arrivals")

    return tell
