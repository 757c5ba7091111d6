"""What a routing decision is made from."""

from dataclasses import dataclass

from prfaas.records import NodeRecord


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as the dispatcher knows it.

    `in_flight` counts the legs that this gateway has there; `prefix_tokens` is the prompt's prefix
    hit at this node (0 for decode nodes); `quarantined_until_s` is on the clock of `decide`.
    """

    record: NodeRecord
    in_flight: int = 0
    prefix_tokens: int = 0
    quarantined_until_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All nodes at one moment. `region` is where requests are decoded."""

    region: str
    threshold_tokens: int
    nodes: tuple[NodeState, ...]


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """What routing needs of a request; `total_tokens` is its prompt plus its longest output."""

    model_id: str
    prompt_tokens: int
    total_tokens: int
