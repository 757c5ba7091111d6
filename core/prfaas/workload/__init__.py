"""What users ask for: prompt lengths, arrivals, traces. For planner, simulator, load tests."""

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

__all__ = [
    "EmpiricalLengths",
    "Lengths",
    "TruncatedLogNormal",
    "expect",
    "mean_above",
    "mean_below",
    "mean_of",
    "quantile",
]
