"""Which threshold and which roles: the search over equations 1 to 8 and what it is compared to."""

from prfaas.planning.baselines import Baselines, baselines
from prfaas.planning.case import Case, CaseFiles, case_files, parse_case
from prfaas.planning.grid import threshold_grid
from prfaas.planning.limits import Limits, limits_of
from prfaas.planning.search import Plan, least_cost, plan, too_low
from prfaas.planning.sensitivity import Change, More, sensitivity
from prfaas.planning.site import Constraints, PdPool, Site, TtftGoal

__all__ = [
    "Baselines",
    "Case",
    "CaseFiles",
    "Change",
    "Constraints",
    "Limits",
    "More",
    "PdPool",
    "Plan",
    "Site",
    "TtftGoal",
    "baselines",
    "case_files",
    "least_cost",
    "limits_of",
    "parse_case",
    "plan",
    "sensitivity",
    "threshold_grid",
    "too_low",
]
