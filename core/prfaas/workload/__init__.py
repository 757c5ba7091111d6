"""What users ask for: prompt lengths, arrivals, traces. For planner, simulator, load tests."""

from prfaas.workload.arrivals import (
    Arrivals,
    Deterministic,
    Diurnal,
    GammaBursts,
    OnOff,
    Poisson,
    Replay,
)
from prfaas.workload.chain import Chain
from prfaas.workload.lengths import (
    EmpiricalLengths,
    Lengths,
    TruncatedLogNormal,
    expect,
    mean_above,
    mean_below,
    mean_of,
    quantile,
)
from prfaas.workload.prefix_hits import PrefixCache, PrefixHits, Reuse, hits_in, prefix_hits
from prfaas.workload.sharing import (
    Conversations,
    NoSharing,
    SharedPrompts,
    Sharing,
    SystemPrefixes,
)
from prfaas.workload.trace import Trace
from prfaas.workload.trace_text import TraceFormat, format_trace, parse_trace

__all__ = [
    "Arrivals",
    "Chain",
    "Conversations",
    "Deterministic",
    "Diurnal",
    "EmpiricalLengths",
    "GammaBursts",
    "Lengths",
    "NoSharing",
    "OnOff",
    "Poisson",
    "PrefixCache",
    "PrefixHits",
    "Replay",
    "Reuse",
    "SharedPrompts",
    "Sharing",
    "SystemPrefixes",
    "Trace",
    "TraceFormat",
    "TruncatedLogNormal",
    "expect",
    "format_trace",
    "hits_in",
    "mean_above",
    "mean_below",
    "mean_of",
    "parse_trace",
    "prefix_hits",
    "quantile",
]
