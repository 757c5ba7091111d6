"""The routing rule: filter, score, pick.

Source: PrfaaS §3.4.3, bandwidth-scarce mode: a request is judged by the cache of the local cluster
alone, and offloaded when its uncached length exceeds the threshold t.
"""

from prfaas.reasons import Reason, Route
from prfaas.records import Role
from prfaas.routing.decision import Decision, Refusal
from prfaas.routing.snapshot import NodeState, RouteRequest, Snapshot


def decide(request: RouteRequest, snapshot: Snapshot, now_s: float) -> Decision | Refusal:
    """Choose the nodes for a request's first attempt."""
    decodes, local, remote = _candidates(request, snapshot, now_s, avoid=frozenset())
    if not decodes:
        return Refusal(Reason.NO_DECODE)
    if not local and not remote:
        return Refusal(Reason.NO_PREFILL)
    route, reason = _route(request, local, remote, snapshot.threshold_tokens)
    prefill = _pick(remote if route is Route.OFFLOAD else local)
    return _decision(route, reason, prefill, _pick(decodes))


def decide_retry(
    request: RouteRequest,
    snapshot: Snapshot,
    now_s: float,
    *,
    failed: Decision,
    avoid: frozenset[str],
) -> Decision | Refusal:
    """Choose the nodes for another attempt after `failed`; `avoid` names nodes not to use again.

    A failed offload comes home as a fallback. A failed local attempt goes to other nodes, the
    local ones first.
    """
    decodes, local, remote = _candidates(request, snapshot, now_s, avoid=avoid)
    if not decodes:
        return Refusal(Reason.NO_DECODE)
    if not local and not remote:
        return Refusal(Reason.NO_PREFILL)
    route = Route.LOCAL if local else Route.OFFLOAD
    reason = Reason.LOCAL_FAILED
    if failed.route is Route.OFFLOAD:
        route = Route.FALLBACK if local else Route.OFFLOAD
        reason = Reason.OFFLOAD_FAILED
    return _decision(route, reason, _pick(local or remote), _pick(decodes))


def _decision(route: Route, reason: Reason, prefill: NodeState, decode: NodeState) -> Decision:
    return Decision(
        route=route,
        reason=reason,
        prefill=prefill.record,
        decode=decode.record,
        prefix_tokens=prefill.prefix_tokens,
    )


def _candidates(
    request: RouteRequest, snapshot: Snapshot, now_s: float, *, avoid: frozenset[str]
) -> tuple[list[NodeState], list[NodeState], list[NodeState]]:
    """Return the decode nodes, the local prefill nodes and the remote ones that may serve."""
    fit = [
        node for node in snapshot.nodes if node.record.name not in avoid and _fits(node, request)
    ]
    decodes = [
        node
        for node in fit
        if node.record.role is Role.DECODE and node.record.region == snapshot.region
    ]
    prefills = [node for node in fit if node.record.role is Role.PREFILL]
    prefills = _prefer_free(prefills, now_s)
    local = [node for node in prefills if node.record.region == snapshot.region]
    remote = [node for node in prefills if node.record.region != snapshot.region]
    return _prefer_free(decodes, now_s), local, remote


def _fits(node: NodeState, request: RouteRequest) -> bool:
    record = node.record
    if request.model_id and record.model_id != request.model_id:
        return False
    return not record.context_tokens or request.total_tokens <= record.context_tokens


def _prefer_free(nodes: list[NodeState], now_s: float) -> list[NodeState]:
    """Drop quarantined nodes, unless that leaves none: a try is better than a refusal."""
    return [node for node in nodes if node.quarantined_until_s <= now_s] or nodes


def _route(
    request: RouteRequest, local: list[NodeState], remote: list[NodeState], threshold_tokens: int
) -> tuple[Route, Reason]:
    if not local:
        return Route.OFFLOAD, Reason.NO_LOCAL_PREFILL
    uncached_tokens = request.prompt_tokens - _pick(local).prefix_tokens
    if uncached_tokens <= threshold_tokens:
        return Route.LOCAL, Reason.BELOW_THRESHOLD
    if not remote:
        return Route.LOCAL, Reason.NO_REMOTE_PREFILL
    return Route.OFFLOAD, Reason.ABOVE_THRESHOLD


def _pick(nodes: list[NodeState]) -> NodeState:
    """Return the node with the least in flight; then the longest prefix hit; then by name."""
    return min(nodes, key=lambda node: (node.in_flight, -node.prefix_tokens, node.record.name))
