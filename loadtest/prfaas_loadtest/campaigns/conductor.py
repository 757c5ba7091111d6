"""Who leads a campaign's load: writes the samples, tells the progress, ends it.

Runs on gevent, in the process that is the only one, or the master of several (see `load`).
"""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import BinaryIO

import gevent
import gevent.event

from prfaas_loadtest.campaigns.sample import Outcome, Sample, format_sample

_TELL_EVERY_S = 5.0


class SampleBook:
    """Writes samples as they come, one line each, so that whatever ends the run keeps them."""

    def __init__(self, file: Path, *, total: int, dilation: float) -> None:
        self._file: BinaryIO = file.open("ab", buffering=0)
        self._total = total
        self._dilation = dilation
        self._outcomes: Counter[str] = Counter()
        self._ttft_s = 0.0
        self._tokens = 0
        self._routes: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Samples so far."""
        return sum(self._outcomes.values())

    def write(self, sample: Sample) -> None:
        """Keep a sample."""
        self._file.write(format_sample(sample))
        self._outcomes[sample.outcome] += 1
        self._routes[_printable(sample.route) or "none"] += 1
        self._tokens += sample.tokens
        if sample.outcome is Outcome.ANSWERED:
            self._ttft_s += (sample.first_s - sample.due_s) / self._dilation

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def line(self, real_s: float) -> str:
        """Return the progress in a line."""
        answered = self._outcomes[Outcome.ANSWERED]
        failed = self.count - answered
        ttft = f", TTFT {self._ttft_s / answered:.2f} s" if answered else ""
        routes = ", ".join(f"{name} {count}" for name, count in sorted(self._routes.items()))
        return f"{real_s:8.1f} s  {answered} of {self._total} answered, {failed} failed{ttft}" + (
            f" ({routes})" if routes else ""
        )


def _printable(text: str) -> str:
    """Return the text of a server with what could steer a terminal escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def tell_progress(book: SampleBook, begin_s: float, dilation: float) -> None:
    """Tell the progress on stderr until killed; times are real seconds since the begin."""
    while True:
        gevent.sleep(_TELL_EVERY_S)
        real_s = max(0.0, (time.monotonic() - begin_s) / dilation)
        sys.stderr.write(book.line(real_s) + "\n")
        sys.stderr.flush()
