"""What routing answers."""

from dataclasses import dataclass
from typing import NamedTuple

from prfaas.reasons import Reason, Route
from prfaas.records import NodeRecord


@dataclass(frozen=True, slots=True)
class Move:
    """Bring the first `tokens` of the prompt from the cache of `source` to the prefill node."""

    source: NodeRecord
    tokens: int


class Decision(NamedTuple):
    """Serve the request on these two nodes; `prefix_tokens` is the hit at the prefill node.

    `move` is set where another region holds more of the prompt and the link has room for it.
    """

    route: Route
    reason: Reason
    prefill: NodeRecord
    decode: NodeRecord
    prefix_tokens: int = 0
    move: Move | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """There is no pair of nodes that could serve the request, or none that should.

    After `retry_after_s` there may be one.
    """

    reason: Reason
    retry_after_s: float = 1.0
