"""A campaign as one page: no scripts, nothing loaded, figures inline."""

from importlib.metadata import version
from typing import Any

from prfaas_cli.campaign_lines import head_of, latency_rows, notes_of, rate_rows, tenant_rows
from prfaas_cli.campaign_plots import plots_of
from prfaas_cli.campaign_results import Results

_TEMPLATE = "campaign_report.html"


def page(results: Results) -> str:
    """Return the page of one run."""
    tables = [latency_rows(results), rate_rows(results)]
    if len(results.summary.tenants) > 1:
        tables.append(tenant_rows(results))
    return _render(
        title=f"Campaign {results.campaign.name}",
        head=head_of(results),
        tables=tables,
        notes=list(notes_of(results)),
        facts=_facts(results),
        text=results.folder.campaign.read_text(),
        plots=plots_of([("measured", results)]),
    )


def _render(**shown: Any) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("prfaas_cli"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(_TEMPLATE).render(version=version("prfaas"), **shown)


def _facts(results: Results) -> list[tuple[str, str]]:
    facts = results.facts
    found = [("target", facts.url)]
    if facts.engines:
        counts = ", ".join(map(str, facts.instances))
        found.append(("engines", f"{facts.engines}; instances {counts}"))
    if facts.threshold_tokens is not None:
        found.append(("threshold", f"{facts.threshold_tokens} tokens"))
    if facts.link_bits_per_s is not None:
        found.append(("link", f"{facts.link_bits_per_s / 1e9:g} Gbps"))
    found.append(("scale of bytes, of time", f"{facts.scale:g}, {facts.dilation:g}"))
    if results.prediction is not None:
        told = results.prediction
        found.append(("predicted with", f"case {told.case}, policy {told.policy}"))
    return found
