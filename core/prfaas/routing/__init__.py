"""Short-term routing: from a snapshot of the nodes to a decision with a reason. Pure."""

from prfaas.routing.decide import decide, decide_retry, pick_best
from prfaas.routing.decision import Decision, Move, Refusal
from prfaas.routing.link_control import LinkControl, LinkLimits, LinkSignal
from prfaas.routing.pace import Pace, mean_pace
from prfaas.routing.patience import patience_s
from prfaas.routing.quarantine import Quarantine
from prfaas.routing.slow_start import SlowStart
from prfaas.routing.snapshot import (
    Bandwidth,
    LinkRule,
    ListedNodes,
    NodePool,
    NodeState,
    RemoteRegion,
    Routable,
    RouteRequest,
    Snapshot,
    snapshot_of,
)

__all__ = [
    "Bandwidth",
    "Decision",
    "LinkControl",
    "LinkLimits",
    "LinkRule",
    "LinkSignal",
    "ListedNodes",
    "Move",
    "NodePool",
    "NodeState",
    "Pace",
    "Quarantine",
    "Refusal",
    "RemoteRegion",
    "Routable",
    "RouteRequest",
    "SlowStart",
    "Snapshot",
    "decide",
    "decide_retry",
    "mean_pace",
    "patience_s",
    "pick_best",
    "snapshot_of",
]
