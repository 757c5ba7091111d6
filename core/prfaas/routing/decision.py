"""What routing answers."""

from dataclasses import dataclass

from prfaas.reasons import Reason, Route
from prfaas.records import NodeRecord


@dataclass(frozen=True, slots=True)
class Decision:
    """Serve the request on these two nodes; `prefix_tokens` is the hit at the prefill node."""

    route: Route
    reason: Reason
    prefill: NodeRecord
    decode: NodeRecord
    prefix_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """There is no pair of nodes that could serve the request."""

    reason: Reason
