"""Workloads: what is asked, when, and by whom; drawn by a seed or replayed from a trace.

`workload` reads a table of a campaign, `schedule` makes requests of it, `prompts` and
`text_prompts` give each its tokens. Nothing here waits, sends or reads a clock.
"""

from prfaas_loadtest.workloads.prompts import IdPrompts
from prfaas_loadtest.workloads.schedule import Request, Schedule, format_schedule, make_schedule
from prfaas_loadtest.workloads.text_prompts import TextPrompts, load_text_prompts
from prfaas_loadtest.workloads.workload import Workload, parse_workload

__all__ = [
    "IdPrompts",
    "Request",
    "Schedule",
    "TextPrompts",
    "Workload",
    "format_schedule",
    "load_text_prompts",
    "make_schedule",
    "parse_workload",
]
