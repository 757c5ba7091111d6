"""What a routing decision is made from."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from prfaas.records import NodeRecord, Role


class Routable(Protocol):
    """What routing reads of a request; `total_tokens` is its prompt plus its longest output."""

    @property
    def model_id(self) -> str:
        """The model, or empty for any."""

    @property
    def prompt_tokens(self) -> int:
        """The whole prompt, cached or not."""

    @property
    def total_tokens(self) -> int:
        """The room it needs in a context."""

    @property
    def residency(self) -> str:
        """The label that each of its nodes must have, or empty."""


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """A request, for routing."""

    model_id: str
    prompt_tokens: int
    total_tokens: int
    residency: str = ""


class NodeState(NamedTuple):
    """One node as the dispatcher knows it.

    `in_flight` counts the legs that this dispatcher has there and `backlog_tokens` the uncached
    prompt tokens of those that are not yet prefilled; `prefix_tokens` is the prompt's prefix hit at
    this node (0 for decode nodes); `quarantined_until_s` is on the clock of `decide`;
    `share` is that of a full load which the node is given, less than 1 while it starts slowly.
    """

    record: NodeRecord
    in_flight: int = 0
    prefix_tokens: int = 0
    quarantined_until_s: float = 0.0
    backlog_tokens: int = 0
    share: float = 1.0


R = TypeVar("R", bound=Routable, contravariant=True)
Q = TypeVar("Q", bound=Routable)


class NodePool(Protocol[R]):
    """The nodes of one role in one region, or in several.

    `candidates` may leave out any node that `pick_best` would not choose, so that a pool with an
    index answers without a look at every node.
    """

    def candidates(self, request: R, now_s: float, avoid: frozenset[str]) -> Sequence[NodeState]:
        """Return the nodes that may serve the request, `avoid` (names) left out.

        Nodes in quarantine at `now_s` are left out as well; at infinity none is.
        """


@dataclass(frozen=True, slots=True)
class ListedNodes:
    """A pool that looks at every node: right for a gateway's hundreds.

    Nodes that cannot take the request are left out, and draining and quarantined ones.
    """

    nodes: tuple[NodeState, ...]

    def candidates(
        self, request: Routable, now_s: float, avoid: frozenset[str]
    ) -> Sequence[NodeState]:
        """Return the nodes that may serve the request, `avoid` (names) left out."""
        return [
            node
            for node in self.nodes
            if node.quarantined_until_s <= now_s
            and node.record.name not in avoid
            and _fits(node.record, request)
        ]


class Bandwidth(StrEnum):
    """How much the link between regions has to spare; decides whose cache counts.

    Source: PrfaaS §3.4.3.
    """

    SCARCE = "scarce"
    ABUNDANT = "abundant"


class LinkRule(NamedTuple):
    """What the state of a region's link means for offloads to it.

    A request is offloaded above `threshold_tokens` times `threshold_factor` (1 for a healthy link,
    more as it fills); a closed link gets none. What a filling link sends home it sends only to a
    local node that is done earlier and has a backlog of at most `threshold_tokens`, so that a slow
    link does not become a flooded local cluster. `wait_s` is how long what waits for the link now
    will take.
    """

    bandwidth: Bandwidth = Bandwidth.SCARCE
    threshold_factor: float = 1.0
    closed: bool = False
    wait_s: float = 0.0

    def effective_tokens(self, threshold_tokens: int) -> float:
        """Return above how many uncached tokens prompts are offloaded by it now."""
        return math.inf if self.closed else threshold_tokens * self.threshold_factor


#: The rule of a link of which nothing is known.
OPEN_LINK = LinkRule()


class RemoteRegion(NamedTuple, Generic[Q]):
    """The prefill nodes of another region and the link to it.

    `tokens_per_s` is how fast a node prefills and `link_tokens_per_s` how many tokens' cache the
    link carries: what regions are compared by. The defaults take all regions for equal.
    """

    region: str
    pool: NodePool[Q]
    link: LinkRule = OPEN_LINK
    tokens_per_s: float = 1.0
    link_tokens_per_s: float = math.inf


class Snapshot(NamedTuple, Generic[Q]):
    """All nodes at one moment. `region` is where requests are decoded.

    `tokens_per_s` is how fast a local node prefills, in the unit of `RemoteRegion.tokens_per_s`.
    `absorb_tokens` is the fallback budget: prompts that another region was to prefill are taken
    home only while the local node has a backlog of no more than that. A link behind which more than
    `longest_wait_s` waits counts as closed.
    """

    region: str
    threshold_tokens: int
    decodes: NodePool[Q]
    local: NodePool[Q]
    remotes: tuple[RemoteRegion[Q], ...] = ()
    tokens_per_s: float = 1.0
    absorb_tokens: float = math.inf
    longest_wait_s: float = math.inf


def snapshot_of(
    nodes: Iterable[NodeState],
    *,
    region: str,
    threshold_tokens: int,
    absorb_tokens: float = math.inf,
    longest_wait_s: float = math.inf,
    links: Mapping[str, LinkRule] | None = None,
    tokens_per_s: Mapping[str, float] | None = None,
) -> Snapshot[Routable]:
    """Return a snapshot of listed nodes, the remote regions in order of name.

    `links` are the rules and `tokens_per_s` the speeds by region, where they are known.
    """
    rules, speeds = links or {}, tokens_per_s or {}
    decodes: list[NodeState] = []
    prefills: dict[str, list[NodeState]] = {}
    for node in nodes:
        if node.record.role is Role.PREFILL:
            prefills.setdefault(node.record.region, []).append(node)
        elif node.record.role is Role.DECODE and node.record.region == region:
            decodes.append(node)
    local = prefills.pop(region, [])
    return Snapshot(
        region=region,
        threshold_tokens=threshold_tokens,
        decodes=ListedNodes(tuple(decodes)),
        local=ListedNodes(tuple(local)),
        remotes=tuple(
            RemoteRegion(
                name,
                ListedNodes(tuple(members)),
                link=rules.get(name, LinkRule()),
                tokens_per_s=speeds.get(name, 1.0),
            )
            for name, members in sorted(prefills.items())
        ),
        tokens_per_s=speeds.get(region, 1.0),
        absorb_tokens=absorb_tokens,
        longest_wait_s=longest_wait_s,
    )


def _fits(record: NodeRecord, request: Routable) -> bool:
    if record.draining:
        return False
    if request.residency and request.residency not in record.residency:
        return False
    if request.model_id and record.model_id != request.model_id:
        return False
    return not record.context_tokens or request.total_tokens <= record.context_tokens
