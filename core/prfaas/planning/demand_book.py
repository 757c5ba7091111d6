"""What requests ask for of late, as a gateway sees them pass."""

from dataclasses import dataclass

from prfaas.workload.lengths import Lengths
from prfaas.workload.sketch import LengthSketch, MeanSketch, RateSketch

HALF_LIFE_S = 1800.0
#: Requests to remember before the estimates are believed: lengths have long tails, and with n of
#: them Lambda_max is known to about 1/sqrt(n), which must be less than the gain that is acted on.
MIN_REQUESTS = 2000


@dataclass(frozen=True, slots=True)
class DemandSeen:
    """The estimates. `requests` is how many are remembered, each for its weight; `lengths` is of
    uncached prompt tokens."""

    rate_per_s: float
    lengths: Lengths
    output_tokens: float
    requests: float

    @property
    def mean_tokens(self) -> float:
        """The mean uncached length."""
        values, weights = self.lengths.cells()
        return float((values * weights).sum())


class DemandBook:
    """Streaming estimates in bounded memory; times are of one clock, in seconds."""

    def __init__(self, *, began_s: float, half_life_s: float = HALF_LIFE_S) -> None:
        self._lengths = LengthSketch(half_life_s=half_life_s)
        self._outputs = MeanSketch(half_life_s=half_life_s)
        self._rate = RateSketch(half_life_s=half_life_s, began_s=began_s)

    def note_request(self, uncached_tokens: int, *, at_s: float) -> None:
        """Take a request when it is routed for the first time."""
        self._lengths.add(uncached_tokens, at_s=at_s)
        self._rate.add(at_s=at_s)

    def note_output(self, tokens: int, *, at_s: float) -> None:
        """Take the length of a whole answer."""
        self._outputs.add(tokens, at_s=at_s)

    def seen(self, *, at_s: float) -> DemandSeen | None:
        """Return the estimates; None until a request and an answer were seen."""
        lengths, output_tokens = self._lengths.lengths(), self._outputs.mean()
        if lengths is None or output_tokens is None:
            return None
        rate = self._rate.per_s(at_s=at_s)
        return DemandSeen(rate, lengths, output_tokens, self._lengths.weight)
