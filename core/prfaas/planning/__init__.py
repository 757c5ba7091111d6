"""Which threshold and which roles: the search over equations 1 to 8 and what it is compared to."""

from prfaas.planning.search import Plan, plan, threshold_grid
from prfaas.planning.site import Constraints, PdPool, Site, TtftGoal

__all__ = ["Constraints", "PdPool", "Plan", "Site", "TtftGoal", "plan", "threshold_grid"]
