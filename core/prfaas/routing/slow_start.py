"""Nodes that have just come, or come back, get their load step by step."""

from collections.abc import Iterable

RAMP_S = 10.0
LEAST_SHARE = 0.1


class SlowStart:
    """What share of a full load a node is given: from a tenth to all of it within `ramp_s`.

    A new process has cold caches and may have to compile; a node that did not answer a moment ago
    may not be well yet. The nodes of the first look are as warm as they will ever be known to be.
    """

    def __init__(self, *, ramp_s: float = RAMP_S, least: float = LEAST_SHARE) -> None:
        self._ramp_s = ramp_s
        self._least = least
        self._began_s: dict[str, tuple[str, float]] = {}  # by name: session, begin of the ramp
        self._has_looked = False

    def see(self, nodes: Iterable[tuple[str, str]], now_s: float) -> None:
        """Take the names and sessions of all nodes there are; others are forgotten."""
        begin_s = now_s if self._has_looked else now_s - self._ramp_s
        known, self._began_s = self._began_s, {}
        for name, session in nodes:
            before = known.get(name)
            is_same = before is not None and before[0] == session
            self._began_s[name] = before if before and is_same else (session, begin_s)
        self._has_looked = self._has_looked or bool(self._began_s)

    def restart(self, name: str, session: str, now_s: float) -> None:
        """Begin the ramp again: the node had failed and answers."""
        self._began_s[name] = (session, now_s)

    def share(self, name: str, now_s: float) -> float:
        """Return the share of a node, 1 for one that was never seen."""
        known = self._began_s.get(name)
        if known is None:
            return 1.0
        return min(max((now_s - known[1]) / self._ramp_s, self._least), 1.0)
