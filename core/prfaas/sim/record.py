"""What became of every request, as columns."""

from array import array
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from prfaas.reasons import Route
from prfaas.sim.scenario import Workload

ROUTES = tuple(Route)
_ROUTE_INDEX = {route: index for index, route in enumerate(ROUTES)}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Outcome(IntEnum):
    """How a request ended."""

    OPEN = 0
    """It was not done when the simulation ended."""
    ANSWERED = 1
    REFUSED = 2
    """No node could take it, or admission turned it away."""


class Record:
    """Columns under way; times are seconds of virtual time, NaN where a point was not reached.

    The points up to the first token are those of the attempt that gave it; of a request that went
    on elsewhere when its decode node died they tell nothing of the second prefill. The other
    columns are of the newest attempt.
    """

    def __init__(self, count: int) -> None:
        def times() -> "array[float]":
            return array("d", [float("nan")]) * count

        self.prefill_start_s = times()
        self.prefill_end_s = times()
        self.kv_arrival_s = times()
        self.first_token_s = times()
        self.finish_s = times()
        self.kv_bytes = array("d", [0.0]) * count
        self.uncached_tokens = array("q", [0]) * count
        self.route = array("b", [_ROUTE_INDEX[Route.NONE]]) * count
        self.outcome = array("b", [Outcome.OPEN]) * count
        self.attempts = array("h", [0]) * count
        self.region = array("b", [-1]) * count
        """Where it was prefilled: 0 is the PD cluster, 1 and up the PrfaaS clusters."""

    def note_route(self, index: int, route: Route) -> None:
        """Note the route of the newest attempt."""
        self.route[index] = _ROUTE_INDEX[route]


@dataclass(frozen=True, slots=True)
class Columns:
    """The finished record as arrays of shape `(num_requests,)`; see `Record`."""

    arrival_s: Floats
    prefill_start_s: Floats
    prefill_end_s: Floats
    kv_arrival_s: Floats
    first_token_s: Floats
    finish_s: Floats
    kv_bytes: Floats
    prompt_tokens: Ints
    uncached_tokens: Ints
    output_tokens: Ints
    route: NDArray[np.int8]
    outcome: NDArray[np.int8]
    attempts: NDArray[np.int16]
    region: NDArray[np.int8]

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which requests were answered whole."""
        return np.asarray(self.outcome == Outcome.ANSWERED)

    def took(self, route: Route) -> NDArray[np.bool_]:
        """Which requests went by the route in the end."""
        return np.asarray(self.route == _ROUTE_INDEX[route])

    @property
    def ttft_s(self) -> Floats:
        """Time to first token: queueing, prefill, transfer and the first decode step."""
        return self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> Floats:
        """Time per output token after the first; 0 where there is only one."""
        rest = np.maximum(self.output_tokens - 1, 1)
        return np.asarray((self.finish_s - self.first_token_s) / rest)

    @property
    def e2e_s(self) -> Floats:
        """Time from arrival to the last token."""
        return self.finish_s - self.arrival_s


def columns_of(record: Record, workload: Workload) -> Columns:
    """Return the record as arrays that share its memory, beside what was asked."""
    return Columns(
        arrival_s=workload.arrival_s,
        prompt_tokens=workload.prompt_tokens,
        output_tokens=workload.output_tokens,
        **{name: np.asarray(column) for name, column in vars(record).items()},
    )
