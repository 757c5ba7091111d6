"""What requests ask for of late, as a gateway sees them pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prfaas.errors import ConfigError
from prfaas.workload.lengths import Lengths
from prfaas.workload.sketch import Floats, HistogramLengths, LengthSketch, MeanSketch

HALF_LIFE_S = 1800.0
#: Requests to remember before the estimates are believed: lengths have long tails, and with n of
#: them Lambda_max is known to about 1/sqrt(n), which must be less than the gain that is acted on.
MIN_REQUESTS = 2000
_MAX_CELLS = 4096


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

    def to_json(self) -> dict[str, Any]:
        """Return a value of JSON types."""
        values, weights = self.lengths.cells()
        return {
            "rate_per_s": self.rate_per_s,
            "output_tokens": self.output_tokens,
            "requests": self.requests,
            "lengths": values.tolist(),
            "weights": weights.tolist(),
        }

    @classmethod
    def from_json(cls, raw: object) -> "DemandSeen":
        """Parse what `to_json` gave. Raises: ConfigError, with what is wrong."""
        if not isinstance(raw, dict):
            raise ConfigError("demand: not an object")
        values, weights = (_numbers(raw.get(key), key) for key in ("lengths", "weights"))
        if len(values) != len(weights) or np.any(np.diff(values) <= 0):
            raise ConfigError("demand.lengths: must increase, and have a weight each")
        amounts = [raw.get(key) for key in ("rate_per_s", "output_tokens", "requests")]
        rate, output, requests = _numbers(amounts, "rate_per_s, output_tokens, requests").tolist()
        return cls(rate, HistogramLengths(values, weights), output, requests)


def merged(seen: Sequence[DemandSeen]) -> DemandSeen | None:
    """Return the demand of requests that several gateways saw, each its own; None if none did."""
    if not seen:
        return None
    requests = sum(one.requests for one in seen)
    cells = [one.lengths.cells() for one in seen]
    values = np.concatenate([lengths for lengths, _ in cells])
    counts = np.concatenate(
        [weights * one.requests for (_, weights), one in zip(cells, seen, strict=True)]
    )
    lengths, places = np.unique(values, return_inverse=True)
    return DemandSeen(
        rate_per_s=sum(one.rate_per_s for one in seen),
        lengths=HistogramLengths(
            lengths, np.asarray(np.bincount(places, counts), dtype=np.float64)
        ),
        output_tokens=sum(one.output_tokens * one.requests for one in seen) / requests,
        requests=requests,
    )


def _numbers(raw: object, key: str) -> Floats:
    is_list = isinstance(raw, list) and 0 < len(raw) <= _MAX_CELLS
    if not is_list or any(type(value) not in (int, float) for value in raw):  # type: ignore[attr-defined]
        raise ConfigError(f"demand.{key}: expected 1 to {_MAX_CELLS} numbers")
    try:
        numbers = np.asarray(raw, dtype=np.float64)
    except OverflowError:  # an integer beyond all floats
        raise ConfigError(f"demand.{key}: expected numbers") from None
    if not np.all(np.isfinite(numbers)) or np.any(numbers <= 0):
        raise ConfigError(f"demand.{key}: expected positive numbers")
    return numbers


class DemandBook:
    """Streaming estimates in bounded memory; times are of one clock, in seconds."""

    def __init__(self, *, began_s: float, half_life_s: float = HALF_LIFE_S) -> None:
        self._lengths = LengthSketch(half_life_s=half_life_s)
        self._outputs = MeanSketch(half_life_s=half_life_s)
        self._began_s = began_s

    def note_request(self, uncached_tokens: int, *, at_s: float) -> None:
        """Take a request when it is routed for the first time."""
        self._lengths.add(uncached_tokens, at_s=at_s)

    def note_output(self, tokens: int, *, at_s: float) -> None:
        """Take the length of a whole answer."""
        self._outputs.add(tokens, at_s=at_s)

    def seen(self, *, at_s: float) -> DemandSeen | None:
        """Return the estimates; None until a request and an answer were seen."""
        lengths, output_tokens = self._lengths.lengths(), self._outputs.mean()
        if lengths is None or output_tokens is None:
            return None
        rate = self._lengths.per_s(since_s=self._began_s, at_s=at_s)
        return DemandSeen(rate, lengths, output_tokens, self._lengths.weight)
