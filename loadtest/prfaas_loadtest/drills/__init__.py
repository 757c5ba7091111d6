"""Chaos drills: a TOML file says what breaks when, under which load, and what must hold.

`make_plan` turns a drill and a seed into all that will be done, `run_drill` does it on a `Site`
that the caller gives, `verdict` judges what it left. Only `client`, `load`, `breakage` and `run`
act; the rest is pure.
"""

from prfaas_loadtest.drills.library import library_names, read_drill
from prfaas_loadtest.drills.plan import DrillPlan, make_plan
from prfaas_loadtest.drills.run import Run, run_drill
from prfaas_loadtest.drills.site import Site, Snapshot
from prfaas_loadtest.drills.spec import Drill, SiteSpec, parse_drill

__all__ = [
    "Drill",
    "DrillPlan",
    "Run",
    "Site",
    "SiteSpec",
    "Snapshot",
    "library_names",
    "make_plan",
    "parse_drill",
    "read_drill",
    "run_drill",
]
