"""A limit of so much per second, with a reserve for bursts."""


class TokenBucket:
    """Holds at most `burst`, fills by `per_s`. It may go below zero: what was used is paid later.

    >>> bucket = TokenBucket(per_s=2.0, burst=4.0, now_s=0.0)
    >>> bucket.wait_s(3.0, now_s=0.0)
    0.0
    >>> bucket.take(3.0, now_s=0.0)
    >>> bucket.wait_s(3.0, now_s=0.0)
    1.0
    >>> bucket.wait_s(99.0, now_s=1.5)  # more than it can hold: a full one is enough
    0.0
    """

    def __init__(self, *, per_s: float, burst: float, now_s: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._level = burst
        self._at_s = now_s

    def wait_s(self, amount: float, *, now_s: float) -> float:
        """Return in how many seconds so much, or the most it holds, will be there."""
        self._fill(now_s)
        return max(min(amount, self._burst) - self._level, 0.0) / self._per_s

    def take(self, amount: float, *, now_s: float) -> None:
        """Take so much, whether it is there or not."""
        self._fill(now_s)
        self._level -= amount

    def _fill(self, now_s: float) -> None:
        passed_s = max(now_s - self._at_s, 0.0)
        self._level = min(self._level + passed_s * self._per_s, self._burst)
        self._at_s = now_s
