"""Where each request was when: the columns of a run as intervals, one per stage and request."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from prfaas.sim.record import Columns, Outcome

Floats = NDArray[np.float64]

STAGES = ("queued", "prefill", "transfer", "decode_wait", "decode")


@dataclass(frozen=True, slots=True)
class Timeline:
    """Per request the times at which it entered each of `STAGES`, and at which it left the last.

    `points` has shape `(num_stages + 1, num_requests)` and never decreases along its first axis. A
    request that is still open is in its stage until `horizon_s`, the end of the simulation; one
    that was refused is in none. Of several attempts the newest counts.
    """

    points: Floats
    horizon_s: float

    def of(self, stage: str) -> tuple[Floats, Floats]:
        """Return when the requests entered and left a stage."""
        index = STAGES.index(stage)
        return self.points[index], self.points[index + 1]


def timeline_of(columns: Columns, until_s: float = float("inf")) -> Timeline:
    """Return the timeline of a run that ended at `until_s`, or with its last request."""
    begin_s = _decode_begin_s(columns)
    reached = (
        columns.prefill_start_s,
        columns.prefill_end_s,
        columns.kv_arrival_s,
        begin_s,
        columns.finish_s,
    )
    horizon_s = until_s if np.isfinite(until_s) else _last_of(columns, reached)
    # Where all came at one moment and were refused, the run counts as a second: rates have a span.
    first_s = float(columns.arrival_s[0])
    horizon_s = horizon_s if horizon_s > first_s else first_s + 1.0
    refused = columns.outcome == Outcome.REFUSED
    points = np.empty((len(STAGES) + 1, len(columns.arrival_s)))
    points[0] = np.minimum(columns.arrival_s, horizon_s)
    for (index, following), point in zip(pairwise(range(len(points))), reached, strict=True):
        missing = np.where(refused, points[index], horizon_s)
        # What an earlier attempt left behind lies before where the newest one stands.
        unknown = np.isnan(point) | refused | (point < points[index])
        points[following] = np.where(unknown, missing, np.minimum(point, horizon_s))
    return Timeline(points, horizon_s)


def _decode_begin_s(columns: Columns) -> Floats:
    """Return when requests joined a decode batch: a step before their first token.

    How long that step was is not recorded; the request's own mean step stands for it.
    """
    step_s = np.nan_to_num(columns.tpot_s)
    began_s = np.maximum(columns.first_token_s - step_s, columns.kv_arrival_s)
    return np.asarray(began_s)


def _last_of(columns: Columns, reached: tuple[Floats, ...]) -> float:
    ends = [float(columns.arrival_s[-1])]
    for point in reached:
        known = point[~np.isnan(point)]
        if len(known):
            ends.append(float(known.max()))
    return max(ends)
