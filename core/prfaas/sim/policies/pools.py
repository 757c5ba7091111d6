"""Policies of other systems: one pool of prefill nodes, one of decode nodes, no links looked at."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prfaas.profile import Curve
from prfaas.reasons import Reason, Route
from prfaas.routing import Decision, NodeState, Refusal, pick_best
from prfaas.sim.request import SimRequest

if TYPE_CHECKING:
    from prfaas.sim.world import World

_NONE: frozenset[str] = frozenset()


class LeastLoadedPolicy:
    """The prefill node with the least tokens to compute, wherever it is; of both kinds alike."""

    name = "least-loaded"
    models = "join the least loaded node, over all regions, blind to length, speed and link"
    source = "least-request load balancing, as in SGLang's router without its cache policy"
    period_s = 0.0

    def __init__(self) -> None:
        self._world: World | None = None

    def start(self, world: "World") -> None:
        """Get to know the pools."""
        self._world = world

    def place(self, request: SimRequest, now_s: float) -> Decision | Refusal:
        """Choose the nodes of a request's first attempt."""
        return self._choose(request, now_s, _NONE)

    def place_again(
        self, request: SimRequest, now_s: float, failed: Decision
    ) -> Decision | Refusal:
        """Choose the nodes of another attempt, as for the first."""
        del failed
        return self._choose(request, now_s, request.avoid)

    def act(self, now_s: float) -> None:
        """Do nothing."""

    @property
    def world(self) -> "World":
        """The world that this policy routes in."""
        if self._world is None:
            raise AssertionError("start comes first")
        return self._world

    def pick_prefill(
        self, request: SimRequest, candidates: Sequence[NodeState]
    ) -> NodeState | None:
        """Return the node that is to prefill."""
        return pick_best(candidates, request)

    def _choose(
        self, request: SimRequest, now_s: float, avoid: frozenset[str]
    ) -> Decision | Refusal:
        world = self.world
        decode = pick_best(world.decodes.candidates(request, now_s, avoid), request)
        if decode is None:
            return Refusal(Reason.NO_DECODE)
        pools = [world.pd.pool, *(region.pool for region in world.remotes.values())]
        nodes = [node for pool in pools for node in pool.candidates(request, now_s, avoid)]
        prefill = self.pick_prefill(request, nodes)
        if prefill is None:
            return Refusal(Reason.NO_PREFILL)
        local = prefill.record.region == world.pd.name
        # There is no threshold here; of the gateway's words these two say local and remote.
        route = Route.LOCAL if local else Route.OFFLOAD
        reason = Reason.BELOW_THRESHOLD if local else Reason.ABOVE_THRESHOLD
        return Decision(route, reason, prefill.record, decode.record, prefill.prefix_tokens)


class ShortestQueuePolicy(LeastLoadedPolicy):
    """Splitwise's cluster scheduler: join the shortest queue, in tokens, of either pool."""

    name = "homogeneous"
    models = "PD disaggregation on one kind of hardware, prefill and decode pools, shortest queue"
    source = "Splitwise (ISCA 2024) §4.2, without its mixed pool; PrfaaS Table 6, homogeneous PD"


class PlacementPolicy(LeastLoadedPolicy):
    """DistServe: the numbers of instances are what maximises goodput; queues first come."""

    name = "distserve"
    models = "PD disaggregation on one kind of hardware, split for the most goodput under the SLOs"
    source = "DistServe (OSDI 2024) §4.1 (placement by goodput) and §4.3 (shortest queue)"


class CacheCentricPolicy(LeastLoadedPolicy):
    """Mooncake: the prefill node with the least estimated TTFT, its cached prefix considered.

    A node's queue is estimated as its backlog at the mean time per token of the profile. Hot
    prefixes are not replicated, and nothing is turned away.
    """

    name = "mooncake"
    models = "KV-cache-centric scheduling on one kind of hardware: least estimated TTFT"
    source = "Mooncake (FAST 2025) §6, algorithm 1 without hot-spot migration and early rejection"

    def __init__(self) -> None:
        super().__init__()
        self._prefill_s: Curve | None = None
        self._s_per_token = 0.0

    def start(self, world: "World") -> None:
        """Get to know the pools, and how fast they are."""
        super().start(world)
        self._prefill_s = world.pd.profile.prefill_s
        mean_tokens = float(world.workload.prompt_tokens.mean())
        self._s_per_token = self._prefill_s.at(mean_tokens) / mean_tokens

    def pick_prefill(
        self, request: SimRequest, candidates: Sequence[NodeState]
    ) -> NodeState | None:
        """Return the node with the least queue plus prefill time."""
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        return min(candidates, key=lambda node: (self._ttft_s(request, node), node.record.name))

    def _ttft_s(self, request: SimRequest, node: NodeState) -> float:
        if self._prefill_s is None:
            raise AssertionError("start comes first")
        uncached_tokens = request.prompt_tokens - node.prefix_tokens
        return node.backlog_tokens * self._s_per_token + self._prefill_s.at(uncached_tokens)


class ColocatedPolicy(LeastLoadedPolicy):
    """Every node does both; a request's prompt and output are computed where it was sent."""

    name = "colocated"
    models = "no disaggregation: chunked prefill beside decode on every node, least loaded"
    source = "Sarathi-Serve (OSDI 2024) §4: stall-free batches of decodes and a prefill chunk"

    def _choose(
        self, request: SimRequest, now_s: float, avoid: frozenset[str]
    ) -> Decision | Refusal:
        node = pick_best(self.world.pd.pool.candidates(request, now_s, avoid), request)
        if node is None:
            return Refusal(Reason.NO_PREFILL)
        reason = Reason.BELOW_THRESHOLD
        return Decision(Route.LOCAL, reason, node.record, node.record, node.prefix_tokens)
