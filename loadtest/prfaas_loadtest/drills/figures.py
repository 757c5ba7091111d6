"""A run of a drill in numbers."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from prfaas_loadtest.drills.run import Run
from prfaas_loadtest.drills.verdict import fallback_times_s, is_right

Json = dict[str, Any]


def figures_of(run: Run) -> Json:
    """Return what a report and a track record show: counts, times in seconds."""
    evidence = run.evidence
    right = [record for record in run.records if is_right(record, evidence.right)]
    began_s, over_s = run.plan.first_fault_s, evidence.over_s
    calm = [record.took_s for record in right if record.end_s < began_s]
    broken = [record.took_s for record in right if began_s <= record.sent_s < over_s]
    fallback_s = max(fallback_times_s(evidence), default=math.nan)
    recovery_s = math.nan if evidence.recovered_s is None else evidence.recovered_s - over_s
    return {
        "requests": len(run.records),
        "right": len(right),
        "outcomes": dict(sorted(Counter(str(record.outcome) for record in run.records).items())),
        "routes": dict(sorted(Counter(r.route for r in run.records if r.route).items())),
        "reasons": dict(sorted(Counter(r.reason for r in run.records if r.reason).items())),
        "fallback_s": _number(fallback_s),
        "recovery_s": _number(max(0.0, recovery_s) if math.isfinite(recovery_s) else recovery_s),
        "calm_p50_s": _quantile(calm, 0.5),
        "calm_p90_s": _quantile(calm, 0.9),
        "broken_p50_s": _quantile(broken, 0.5),
        "broken_p90_s": _quantile(broken, 0.9),
        "slowest_s": _number(max((record.took_s for record in right), default=math.nan)),
    }


def _quantile(values: Sequence[float], share: float) -> float | None:
    return _number(float(np.quantile(values, share))) if values else None


def _number(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
