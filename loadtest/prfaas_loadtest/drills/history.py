"""What became of every request: the record that validators judge."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from prfaas.errors import ConfigError


class Outcome(StrEnum):
    """How one request ended, as its client saw it."""

    ANSWERED = "answered"
    """All tokens came, and the end."""
    FAILED = "failed"
    """An error that says why: a status, or an event in the stream."""
    CUT = "cut"
    """The connection ended in the middle, without a word."""
    REFUSED = "refused"
    """No connection was made: the request was never accepted."""
    SILENT = "silent"
    """Nothing came until the client's patience was over."""
    ABANDONED = "abandoned"
    """The client hung up, as planned."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are seconds after the load's begin; `first_s` is 0 without a first token.

    `sent_s` is when it was to be sent: what the client's own delay adds counts as waiting. `events`
    are the ends that the answer told of; `tokens` all output ids that came.
    """

    number: int
    sent_s: float
    end_s: float
    outcome: Outcome
    is_long: bool
    is_stream: bool
    prompt_tokens: int
    wanted_tokens: int
    first_s: float = 0.0
    status: int = 0
    route: str = ""
    reason: str = ""
    prefill: str = ""
    tokens: tuple[int, ...] = ()
    ends: int = 0
    detail: str = ""

    @property
    def took_s(self) -> float:
        """From when it was to be sent to its end."""
        return self.end_s - self.sent_s


def to_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield a history as lines of JSON."""
    for record in records:
        yield json.dumps(asdict(record)) + "\n"


def parse_lines(lines: Iterable[str], *, source: str) -> list[Record]:
    """Return the history of `to_lines`.

    Raises:
        ConfigError: a line is none; names source and line.
    """
    found = []
    for number, line in enumerate(lines, 1):
        try:
            raw: dict[str, Any] = json.loads(line)
            raw["outcome"] = Outcome(raw["outcome"])
            raw["tokens"] = tuple(raw["tokens"])
            found.append(Record(**raw))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{source}: line {number}: not a record: {error}") from None
    return found
