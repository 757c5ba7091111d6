"""Campaigns: measured load on a deployment, open loop.

`campaign` reads a file, `asking` and `answers` are the forms of requests and of streams, `sample`
what is kept of each request, `summary` what they come to, `run` starts the processes that send.
Those processes (`load`, `sender`, `conductor`) are the only ones that import Locust, which patches
sockets for gevent; nothing else may import them.
"""

from prfaas_loadtest.campaigns.campaign import (
    Campaign,
    InputForm,
    Target,
    campaign_files,
    parse_campaign,
)
from prfaas_loadtest.campaigns.sample import Outcome, Sample, read_samples
from prfaas_loadtest.campaigns.summary import Slo, Summary, summarise

__all__ = [
    "Campaign",
    "InputForm",
    "Outcome",
    "Sample",
    "Slo",
    "Summary",
    "Target",
    "campaign_files",
    "parse_campaign",
    "read_samples",
    "summarise",
]
