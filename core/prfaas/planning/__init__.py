"""Which threshold and which roles: the search over equations 1 to 8 and what it is compared to."""

from prfaas.planning.baselines import Baselines, baselines
from prfaas.planning.case import Case, CaseFiles, case_files, parse_case
from prfaas.planning.grid import threshold_grid
from prfaas.planning.search import Plan, plan
from prfaas.planning.sensitivity import Change, More, sensitivity
from prfaas.planning.site import Constraints, PdPool, Site, TtftGoal

__all__ = [
    "Baselines",
    "Case",
    "CaseFiles",
    "Change",
    "Constraints",
    "More",
    "PdPool",
    "Plan",
    "Site",
    "TtftGoal",
    "baselines",
    "case_files",
    "parse_case",
    "plan",
    "sensitivity",
    "threshold_grid",
]
