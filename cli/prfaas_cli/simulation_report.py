"""A comparison of policies as one page: no scripts, nothing loaded, figures inline.

Source of the figures' data: `prfaas.sim.summary.Series`.
"""

from importlib.metadata import version
from typing import Any

from prfaas.planning import Site
from prfaas.workload.lengths import TruncatedLogNormal, mean_of
from prfaas_cli.simulation import Comparison, Question
from prfaas_cli.simulation_lines import alike_of, facts_of, fault_words, head_of, tables_of
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
        "tables": list(tables_of(comparison)),
        "alike": list(alike_of(comparison)),
        "contenders": [(run.contender, list(facts_of(question, run))) for run in comparison.runs],
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
    limit = question.case.constraints.max_cost_per_hour
    kept = "its own" if question.own_caches else "one for all nodes of a cluster"
    return [
        ("clusters", "; ".join(clusters)),
        ("round trip", f"{question.rtt_s * 1e3:g} ms"),
        ("layers sent one by one", str(question.layers)),
        ("cache per node", f"{question.cache_tokens} tokens, {kept}"),
        ("seed", str(question.seed)),
        ("faults", "; ".join(map(fault_words, question.faults)) or "none"),
        ("prompts", _prompts(question)),
        ("prices per instance and hour", _prices(site)),
        ("most cost per hour", "no limit" if limit is None else f"{limit:g}"),
    ]


def _prompts(question: Question) -> str:
    if question.trace is not None:
        lengths = question.trace.prompt_lengths
        return f"of the trace, {mean_of(lengths):,.0f} tokens in the mean, answers as recorded"
    demand = question.case.demand
    form = ""
    if isinstance(demand.lengths, TruncatedLogNormal):
        drawn = demand.lengths
        form = (
            f"log-normal, mu {drawn.mu:g}, sigma {drawn.sigma:g},"
            f" {drawn.low:,.0f} to {drawn.high:,.0f} tokens; "
        )
    return (
        f"{form}{mean_of(demand.lengths):,.0f} tokens in the mean,"
        f" answers of {demand.output_tokens:,.0f}"
    )


def _prices(site: Site) -> str:
    shown = "; ".join(f"{hardware}: {price:g}" for hardware, price in site.prices.items())
    return shown or "none given"
