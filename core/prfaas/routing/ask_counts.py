"""How often something was asked for of late, for any number of things in a fixed memory."""

import numpy as np
import xxhash

_DEPTH = 4


class AskCounts:
    """A count-min sketch whose counts halve every `half_life_s`; never counts too little.

    A count is too high by at most e * (all counts of late) / `width`, save with probability e**-4.
    `width` times 16 bytes, whatever is counted. Times are of one monotonic clock, in seconds.

    Source: Cormode and Muthukrishnan, An improved data stream summary (2005); conservative update
    after Estan and Varghese (2002).
    """

    def __init__(self, *, width: int = 1 << 15, half_life_s: float = 60.0) -> None:
        self._rows = np.zeros((_DEPTH, width), dtype=np.float32)
        self._half_life_s = half_life_s
        self._halved_s: float | None = None

    def add(self, name: bytes, now_s: float) -> float:
        """Count one more; return the count with it."""
        self._fade(now_s)
        columns = self._columns(name)
        counts = [self._rows[row, column] for row, column in enumerate(columns)]
        count = float(min(counts)) + 1.0
        for row, column in enumerate(columns):
            self._rows[row, column] = max(counts[row], count)
        return count

    def count(self, name: bytes, now_s: float) -> float:
        """Return the count."""
        self._fade(now_s)
        return float(min(self._rows[row, c] for row, c in enumerate(self._columns(name))))

    def _columns(self, name: bytes) -> list[int]:
        low = xxhash.xxh3_128_intdigest(name)
        width = self._rows.shape[1]
        return [(low >> 32 * row & 0xFFFFFFFF) % width for row in range(_DEPTH)]

    def _fade(self, now_s: float) -> None:
        if self._halved_s is None:
            self._halved_s = now_s
        halves = int((now_s - self._halved_s) / self._half_life_s)
        if halves > 0:
            self._rows *= 0.5 ** min(halves, 100)
            self._halved_s += halves * self._half_life_s
