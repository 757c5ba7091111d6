"""What `prfaasctl trace offload` says: the share of a trace that is worth offloading."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from prfaas.errors import ConfigError
from prfaas.planning import PdPool, Plan, Site, plan
from prfaas.profile import InstanceProfile
from prfaas.throughput import Demand, PrefillCluster
from prfaas.units import format_duration, format_rate
from prfaas.workload import EmpiricalLengths, Reuse, Trace, mean_of, prefix_hits
from prfaas.workload.offload_share import (
    Route,
    offload_share,
    offload_share_of_local_hits,
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The instances among which the planner divides the trace, and the TPOT to keep."""

    local_instances: int
    remote_instances: int
    tpot_s: float


def check_tpot(local: InstanceProfile, tpot_s: float) -> None:
    """Refuse a TPOT that no batch of the local instances keeps.

    Raises:
        ConfigError: naming the least that can be kept.
    """
    if local.decode is not None and local.decode.batch_within(tpot_s) == 0:
        least = f"{local.decode.step_s.at(1) * 1e3:g}ms"
        raise ConfigError(
            f"--tpot {format_duration(tpot_s)}: allowed: {least} or more, the decode step of"
            f" {local.name} at batch 1"
        )


def offload_document(trace: Trace, route: Route, fleet: Fleet) -> dict[str, Any]:
    """Return the shares as plain JSON values, one case for each assumption on prefix hits."""
    return {
        "requests": len(trace),
        "rate_per_s": trace.rate_per_s,
        "local": route.local.name,
        "remote": route.remote.name,
        "link_bytes_per_s": route.link_bytes_per_s,
        "rtt_s": route.rtt_s,
        "pipelined": route.pipelined,
        "fleet": asdict(fleet),
        "cases": list(_cases(trace, route, fleet)),
    }


def _cases(trace: Trace, route: Route, fleet: Fleet) -> Iterator[dict[str, Any]]:
    yield _case("none", trace, trace.prompt_lengths, route, fleet)
    if not trace.block_tokens:
        return
    for reuse in Reuse:
        hits = prefix_hits(trace, reuse)
        yield _case(f"{reuse}, in both", trace, hits.lengths, route, fleet)
        share = offload_share_of_local_hits(hits.uncached_tokens, hits.prompt_tokens, route)
        yield {
            "hits": f"{reuse}, local only",
            "uncached_mean_tokens": mean_of(hits.lengths),
            "faster": asdict(share),
            "planned": None,
        }


def _case(
    name: str, trace: Trace, lengths: EmpiricalLengths, route: Route, fleet: Fleet
) -> dict[str, Any]:
    return {
        "hits": name,
        "uncached_mean_tokens": mean_of(lengths),
        "faster": asdict(offload_share(lengths, route)),
        "planned": _planned(trace, lengths, route, fleet),
    }


def _planned(
    trace: Trace, lengths: EmpiricalLengths, route: Route, fleet: Fleet
) -> dict[str, Any] | None:
    """Return what the planner makes of the lengths; None where the local profile cannot decode."""
    if route.local.decode is None:
        return None
    best = _plan(lengths, float(trace.output_tokens.mean()), route, fleet)
    threshold = best.threshold_tokens
    return {
        "threshold_tokens": threshold,
        "requests": float(lengths.above(np.array(threshold))),
        "tokens": float(lengths.sum_above(np.array(threshold))) / mean_of(lengths),
        "n_p": best.n_p,
        "n_d": best.n_d,
        "lambda_max_per_s": best.lambda_max,
    }


def _plan(lengths: EmpiricalLengths, output_tokens: float, route: Route, fleet: Fleet) -> Plan:
    if output_tokens <= 0:
        raise ConfigError("the trace has no output tokens, so decode cannot be planned")
    remote = PrefillCluster("remote", route.remote, fleet.remote_instances, route.link_bytes_per_s)
    site = Site((remote,), PdPool("local", route.local, fleet.local_instances))
    return plan(site, Demand(lengths, output_tokens, fleet.tpot_s))


def offload_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the document for a person."""
    from prfaas_cli.output import table

    fleet = document["fleet"]
    yield (
        f"{document['requests']} requests; local {document['local']}, remote {document['remote']},"
        f" link {format_rate(document['link_bytes_per_s'] * 8)},"
        f" round trip {format_duration(document['rtt_s'])}"
        f"{', pipelined' if document['pipelined'] else ''}"
    )
    yield "faster offloaded, nothing queueing:"
    yield from table(_faster_rows(document["cases"]))
    if all(case["planned"] is None for case in document["cases"]):
        yield "not planned: the local profile cannot decode"
        return
    yield (
        f"planned for most requests per second, {fleet['remote_instances']} remote and"
        f" {fleet['local_instances']} local instances,"
        f" TPOT {format_duration(fleet['tpot_s'])}:"
    )
    yield from table(_planned_rows(document["cases"]))


def _faster_rows(cases: list[dict[str, Any]]) -> list[list[str]]:
    rows = [["prefix hits", "uncached mean", "requests", "tokens", "from tokens", "saved, s"]]
    for case in cases:
        faster = case["faster"]
        begin = faster["from_tokens"]
        rows.append(
            [
                case["hits"],
                f"{case['uncached_mean_tokens']:.0f}",
                f"{faster['requests']:.1%}",
                f"{faster['tokens']:.1%}",
                "-" if begin is None else str(begin),
                f"{faster['saved_s']:.2f}",
            ]
        )
    return rows


def _planned_rows(cases: list[dict[str, Any]]) -> list[list[str]]:
    rows = [["prefix hits", "threshold t", "requests", "tokens", "N_p / N_d", "Lambda_max, 1/s"]]
    return rows + [_planned_row(case["hits"], case["planned"]) for case in cases if case["planned"]]


def _planned_row(hits: str, planned: dict[str, Any]) -> list[str]:
    return [
        hits,
        str(planned["threshold_tokens"]),
        f"{planned['requests']:.1%}",
        f"{planned['tokens']:.1%}",
        f"{planned['n_p']} / {planned['n_d']}",
        f"{planned['lambda_max_per_s']:.2f}",
    ]
