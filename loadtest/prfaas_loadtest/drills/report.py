"""A run of a drill as one page: findings, a timeline, figures; no scripts, nothing loaded."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from prfaas_loadtest.drills.figures import figures_of
from prfaas_loadtest.drills.run import Run
from prfaas_loadtest.drills.timeline import timeline_svg

_TEMPLATE = "drill_report.html"


def page(run: Run) -> str:
    """Return the page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("prfaas_loadtest.drills"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(_TEMPLATE).render(_shown(run))


def _shown(run: Run) -> dict[str, Any]:
    drill = run.plan.drill
    return {
        "title": f"Drill {drill.name}: {'passed' if run.passed else 'FAILED'}",
        "about": drill.about,
        "command": f"prfaasctl drill run {drill.name} --seed {run.plan.seed}",
        "version": version("prfaas"),
        "digest": run.plan.digest,
        "findings": run.findings,
        "facts": list(_facts(run)),
        "moments": run.moments,
        "timeline": timeline_svg(run),
    }


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    drill = run.plan.drill
    site, load = drill.site, drill.load
    yield "site", f"twins {site.instances}, security {site.security}, scale {site.scale:g}"
    yield "load", f"{load.requests_per_s:g} requests/s for {load.seconds:g} s, open loop"
    for name, value in figures_of(run).items():
        if isinstance(value, dict):
            value = ", ".join(f"{word} {count}" for word, count in value.items()) or "none"
        yield name.replace("_s", " (s)") if name.endswith("_s") else name, str(value)
