"""Nodes that did not answer, and for how long to leave them alone."""

from dataclasses import dataclass

FIRST_S = 1.0
LAST_S = 10.0


@dataclass(frozen=True, slots=True)
class _Sentence:
    session: str
    until_s: float
    length_s: float


class Quarantine:
    """Remembers connection failures per node; each failure in a row doubles the time, to a limit.

    etcd lists a dead node until its lease ends, and longer after an outage of etcd: this is what
    keeps requests away from it meanwhile. Overload is never a reason to get in here.
    """

    def __init__(self, *, first_s: float = FIRST_S, last_s: float = LAST_S) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._sentences: dict[str, _Sentence] = {}

    def add(self, name: str, session: str, now_s: float) -> None:
        """Note that the node refused or reset a connection.

        Legs that fail together count once: a node already inside is not sentenced again.
        """
        known = self._sentences.get(name)
        if known and known.session == session and now_s < known.until_s:
            return
        length_s = self._first_s
        if known and known.session == session:
            length_s = min(known.length_s * 2, self._last_s)
        self._sentences[name] = _Sentence(session, now_s + length_s, length_s)

    def clear(self, name: str) -> None:
        """Note that the node answered."""
        self._sentences.pop(name, None)

    def until_s(self, name: str, session: str) -> float:
        """Return when the node may be used again, 0 if it may now; a new session is free."""
        known = self._sentences.get(name)
        return known.until_s if known and known.session == session else 0.0

    def retain(self, names: frozenset[str]) -> None:
        """Forget nodes that no longer exist."""
        self._sentences = {name: s for name, s in self._sentences.items() if name in names}
