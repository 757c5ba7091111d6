"""A comparison of policies as one page: no scripts, nothing loaded, figures inline.

Source of the figures' data: `prfaas.sim.summary.Series`.
"""

from importlib.metadata import version
from typing import Any

from prfaas_cli.simulation import Comparison
from prfaas_cli.simulation_lines import (
    LATENCY_HEAD,
    USE_HEAD,
    head_of,
    latency_row,
    troubles_of,
    use_row,
)
from prfaas_cli.simulation_plots import plots_of

_TEMPLATE = "simulation_report.html"


def page(comparison: Comparison, command: str) -> str:
    """Return the page; `command` is what gives the same again."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("prfaas_cli"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(_TEMPLATE).render(_shown(comparison, command))


def _shown(comparison: Comparison, command: str) -> dict[str, Any]:
    question = comparison.question
    return {
        "version": version("prfaas"),
        "command": command,
        "digest": comparison.digest,
        "head": list(head_of(comparison)),
        "facts": _facts(comparison),
        "tables": [
            [LATENCY_HEAD, *map(latency_row, comparison.runs)],
            [USE_HEAD, *map(use_row, comparison.runs)],
        ],
        "contenders": [(run.contender, list(troubles_of(run))) for run in comparison.runs],
        "plots": plots_of(comparison),
        "title": f"Simulation of {question.case.name}",
    }


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    question = comparison.question
    site = question.case.site
    clusters = [
        f"{remote.name}: {remote.instances} x {remote.profile.name},"
        f" link {remote.usable_bytes_per_s * 8 / 1e9:g} Gbps"
        for remote in site.remotes
    ]
    clusters.append(f"{site.pd.name}: {site.pd.instances} x {site.pd.profile.name}")
    faults = [
        f"{fault.kind} {fault.target}{f' = {fault.value:g}' if fault.kind != 'kill' else ''}"
        f" from {fault.at_s:g} s to {fault.until_s:g} s"
        for fault in question.faults
    ]
    kept = "its own" if question.own_caches else "one for all nodes of a cluster"
    return [
        ("clusters", "; ".join(clusters)),
        ("round trip", f"{question.rtt_s * 1e3:g} ms"),
        ("layers sent one by one", str(question.layers)),
        ("cache per node", f"{question.cache_tokens} tokens, {kept}"),
        ("seed", str(question.seed)),
        ("faults", "; ".join(faults) or "none"),
    ]
