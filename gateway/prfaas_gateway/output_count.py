"""How many tokens an answer has, as far as its bytes tell."""

import re

_USAGE = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,9})')
_EVENT = b"data: {"


class OutputCount:
    """Counts an answer as it passes: what its usage says, or else its events, one a token."""

    def __init__(self) -> None:
        self._events = 0
        self._told = 0

    def take(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._events += chunk.count(_EVENT)
        for number in _USAGE.findall(chunk[-4096:]):
            self._told = int(number)

    @property
    def tokens(self) -> int:
        """The tokens up to now; 0 if nothing tells."""
        return self._told or self._events
