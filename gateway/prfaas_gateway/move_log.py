"""The moves of late and what became of them, for people and for Prometheus."""

import time
from collections import Counter, deque
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from prfaas.prefix_moves import FetchAnswer
from prfaas.records import NodeRecord
from prfaas.routing.replication import Verdict

MAX_MOVES = 200


class Cause(StrEnum):
    """Why a prefix was moved."""

    REQUEST = "request"
    """A request waited for it."""
    HOT = "hot"
    """It was asked for often."""
    BY_HAND = "by_hand"


@dataclass(frozen=True, slots=True)
class Move:
    """One move, from a pool to another; what is None is not known yet."""

    at_s: float
    cause: Cause
    source: str
    source_region: str
    destination: str
    destination_region: str
    prompt_tokens: int
    outcome: str
    tokens: int
    gained_tokens: int
    num_bytes: int
    seconds: float
    detail: str


class MoveLog:
    """Keeps the last moves, and counts all of them."""

    def __init__(self, limit: int = MAX_MOVES) -> None:
        self._moves: deque[Move] = deque(maxlen=limit)
        self.verdicts: Counter[Verdict] = Counter()
        self.outcomes: Counter[tuple[str, Cause, str]] = Counter()
        """By destination region, cause and outcome."""
        self.moved_bytes: Counter[tuple[str, str]] = Counter()
        """By source and destination region."""
        self.moved_tokens: Counter[tuple[str, str]] = Counter()

    def note(
        self,
        cause: Cause,
        source: NodeRecord,
        destination: NodeRecord,
        answer: FetchAnswer,
        *,
        prompt_tokens: int,
    ) -> None:
        """Keep a move that is over."""
        gained = max(answer.tokens - answer.had_tokens, 0)
        self._moves.append(
            Move(
                at_s=time.time(),
                cause=cause,
                source=source.name,
                source_region=source.region,
                destination=destination.name,
                destination_region=destination.region,
                prompt_tokens=prompt_tokens,
                outcome=answer.outcome,
                tokens=answer.tokens,
                gained_tokens=gained,
                num_bytes=answer.num_bytes,
                seconds=answer.seconds,
                detail=answer.detail,
            )
        )
        path = source.region, destination.region
        self.outcomes[destination.region, cause, answer.outcome] += 1
        self.moved_bytes[path] += answer.num_bytes
        self.moved_tokens[path] += gained

    def recent(self, limit: int) -> list[dict[str, Any]]:
        """Return the last moves as JSON values, the newest first."""
        return [asdict(move) for move in list(self._moves)[: -limit - 1 : -1]]
