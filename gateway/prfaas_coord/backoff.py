"""How long to wait before the next try of something that keeps failing."""

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Doubling waits between `first_s` and `limit_s`; a run of `reset_after_s` starts afresh.

    >>> backoff = Backoff(first_s=1.0, limit_s=3.0, reset_after_s=30.0)
    >>> [backoff.next_s(ran_s=0.1) for _ in range(3)], backoff.next_s(ran_s=60.0)
    ([1.0, 2.0, 3.0], 1.0)
    """

    first_s: float = 0.5
    limit_s: float = 15.0
    reset_after_s: float = 30.0
    failures: int = 0

    def next_s(self, *, ran_s: float) -> float:
        """Return the wait before the next try, when the last one ran for `ran_s`."""
        if ran_s >= self.reset_after_s:
            self.failures = 0
        self.failures += 1
        # The exponent is capped: a process that fails for weeks must not overflow a float.
        return min(self.limit_s, self.first_s * 2.0 ** min(self.failures - 1, 32))
