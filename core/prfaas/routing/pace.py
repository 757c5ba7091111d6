"""How fast a node prefills, from the requests it was given."""

import math
from collections.abc import Iterable

_HALF_LIFE_S = 60.0
#: Less than that says little.
_LEAST_BUSY_S = 0.5


class Pace:
    """Tokens prefilled over the time that there was something to prefill, the old fading away.

    >>> pace = Pace()
    >>> pace.begin(now_s=0.0)
    >>> pace.begin(now_s=1.0)
    >>> pace.end(now_s=2.0, tokens=2000)
    >>> pace.end(now_s=4.0, tokens=2000)
    >>> round(mean_pace([pace]))
    1000
    """

    def __init__(self) -> None:
        self.tokens = 0.0
        self.busy_s = 0.0
        self._open = 0
        self._since_s = 0.0

    def begin(self, *, now_s: float) -> None:
        """Note a request that the node is to prefill."""
        if not self._open:
            self._since_s = now_s
        self._open += 1

    def end(self, *, now_s: float, tokens: int | None) -> None:
        """Note that it is done, or has failed (None): then its time says nothing."""
        self._open -= 1
        passed_s, self._since_s = max(now_s - self._since_s, 0.0), now_s
        if tokens is None:
            return
        kept = math.exp2(-passed_s / _HALF_LIFE_S)
        self.tokens = self.tokens * kept + tokens
        self.busy_s = self.busy_s * kept + passed_s


def mean_pace(paces: Iterable[Pace]) -> float | None:
    """Return the tokens per second of one of these nodes on the mean; None while unknown."""
    known = list(paces)
    busy_s = sum(pace.busy_s for pace in known)
    tokens = sum(pace.tokens for pace in known)
    return tokens / busy_s if busy_s >= _LEAST_BUSY_S and tokens > 0 else None
