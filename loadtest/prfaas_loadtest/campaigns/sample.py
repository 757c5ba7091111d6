"""What is kept of each request: a line of JSON, in seconds of the sender's clock."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from prfaas.errors import StateError

MAX_SAMPLE_BYTES = 16 << 20
MAX_FILE_BYTES = 8 << 30


class Outcome(StrEnum):
    """What became of a request."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """An HTTP error, before any token."""
    BROKEN = "broken"
    """The connection or the stream failed."""
    WRONG = "wrong"
    """Answered, with another number of tokens than asked for."""
    LATE = "late"
    """Given up at the time limit."""
    UNSENT = "unsent"
    """Not sent: as many were in flight as the campaign allows."""
    OPEN = "open"
    """Under way when the campaign was ended."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. Times are seconds since the campaign's begin; `due_s` is when it was due, which
    latencies are counted from, `sent_s` when it was sent. -1 is never.

    `prompt_tokens` is what was sent, `told_prompt_tokens` what the gateway counted (-1: it did not
    say). `gaps_s` are the times between events of the answer, the first after the first event;
    `tokens` is how many output tokens came, `wanted` how many were asked for.
    """

    index: int
    tenant: str
    outcome: Outcome
    due_s: float
    sent_s: float = -1.0
    first_s: float = -1.0
    last_s: float = -1.0
    prompt_tokens: int = 0
    told_prompt_tokens: int = -1
    wanted: int = 0
    tokens: int = 0
    status: int = 0
    error: str = ""
    route: str = ""
    reason: str = ""
    prefill: str = ""
    request_id: str = ""
    gaps_s: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "Sample":
        """Return the sample of a row; keys that are not known are left out.

        Raises:
            ValueError, KeyError, TypeError: the row is none.
        """
        known = {field.name for field in fields(cls)}
        kept = {key: value for key, value in row.items() if key in known}
        kept["outcome"] = Outcome(row["outcome"])
        kept["gaps_s"] = tuple(float(gap) for gap in row.get("gaps_s", ()))
        return cls(**kept)


def format_sample(sample: Sample) -> bytes:
    """Return the sample's line."""
    return orjson.dumps(sample.to_json()) + b"\n"


def read_samples(file: Path) -> list[Sample]:
    """Read a file of samples, in the order of their times; a last line that is cut is left out.

    Raises:
        StateError: it is not there, or damaged.
    """
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise StateError(f"{file}: more than {MAX_FILE_BYTES >> 30} GiB of samples")
        with file.open("rb") as lines:
            found = list(_parsed(lines, file))
    except OSError as error:
        raise StateError(f"{file}: {error.strerror or error}") from None
    return sorted(found, key=lambda sample: (sample.due_s, sample.index))


def _parsed(lines: Any, file: Path) -> Iterator[Sample]:
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        try:
            yield Sample.from_json(orjson.loads(line))
        except (ValueError, KeyError, TypeError):
            raise StateError(f"{file}:{number}: not a sample; allowed: those of a run") from None
