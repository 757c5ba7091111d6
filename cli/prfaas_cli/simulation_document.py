"""A comparison of policies as plain JSON values."""

import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from prfaas.planning import Case
from prfaas_cli.simulation import Comparison, Run


def document_of(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain JSON values; what is not known is null."""
    question = comparison.question
    return {
        "case": question.case.name,
        "seed": question.seed,
        "requests": question.requests,
        "arrivals": None if question.trace else question.arrivals.text,
        "expectation": str(question.expectation),
        "slo": plain(question.slo),
        "digest": comparison.digest,
        "runs": [_run_document(run, question.case) for run in comparison.runs],
    }


def _run_document(run: Run, case: Case) -> dict[str, Any]:
    contender = run.contender
    return {
        "policy": contender.name,
        "models": contender.models,
        "source": contender.source,
        "note": contender.note,
        "lambda_max": contender.lambda_max,
        "instances": run.instances,
        "cost_per_hour": run.cost_per_hour(case.site.prices),
        "rate_per_s": run.rate_per_s,
        "overloaded": run.overloaded,
        "replanned": plain(run.replanned),
        "digest": run.digest,
        "cpu_s": run.cpu_s,
        "summary": plain(run.summary),
    }


def plain(value: Any) -> Any:
    """Return dataclasses and arrays as plain JSON values; NaN and infinity as null.

    >>> from prfaas.sim.summary import Slo
    >>> plain(Slo(1.0, 0.5)), plain(np.array([1.0, np.nan]))
    ({'ttft_s': 1.0, 'tpot_s': 0.5}, [1.0, None])
    """
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
