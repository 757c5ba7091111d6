"""Short-term routing: from a snapshot of the nodes to a decision with a reason. Pure."""

from prfaas.routing.decide import decide, decide_retry
from prfaas.routing.decision import Decision, Refusal
from prfaas.routing.quarantine import Quarantine
from prfaas.routing.snapshot import NodeState, RouteRequest, Snapshot

__all__ = [
    "Decision",
    "NodeState",
    "Quarantine",
    "Refusal",
    "RouteRequest",
    "Snapshot",
    "decide",
    "decide_retry",
]
