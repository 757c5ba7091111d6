"""The routing rule: filter, score, pick.

Source: PrfaaS §3.4.3. While bandwidth is scarce a request is judged by the cache of its own region
alone; while it is abundant, by the best cache anywhere, which is then moved to where the request is
computed.
"""

import math
from collections.abc import Sequence

from prfaas.reasons import Reason, Route
from prfaas.routing.decision import Decision, Move, Refusal
from prfaas.routing.snapshot import Bandwidth, NodeState, Q, RemoteRegion, Routable, Snapshot

_NONE: frozenset[str] = frozenset()
#: Nobody is told to come back later than this.
_LONGEST_RETRY_S = 30.0
_Remote = tuple[RemoteRegion[Q], NodeState]


def decide(request: Q, snapshot: Snapshot[Q], now_s: float) -> Decision | Refusal:
    """Choose the nodes for a request's first attempt.

    Behind a closed link everything is prefilled here, as far as the fallback budget goes.
    """
    outcome = _decide(request, snapshot, now_s)
    return _explained(outcome) if request.residency else outcome


def _explained(outcome: Decision | Refusal) -> Decision | Refusal:
    """Say that no node was found for the residency, where that is so or may be."""
    if isinstance(outcome, Refusal) and outcome.reason is not Reason.FALLBACK_BUDGET:
        return Refusal(Reason.RESIDENCY)
    return outcome


def _decide(request: Q, snapshot: Snapshot[Q], now_s: float) -> Decision | Refusal:
    decode = _pick_decode(request, snapshot, now_s, avoid=_NONE)
    if decode is None:
        return Refusal(Reason.NO_DECODE)
    local, remote = _pick_prefills(request, snapshot, now_s, avoid=_NONE)
    if local is None or remote is None:
        return _decide_alone(request, snapshot, local=local, remote=remote, decode=decode)
    region, node = remote
    uncached_tokens = request.prompt_tokens - _counted_prefix_tokens(local, region, node)
    threshold_tokens = snapshot.threshold_tokens
    if uncached_tokens <= threshold_tokens:
        return _decision(Route.LOCAL, Reason.BELOW_THRESHOLD, local, decode, region, node)
    if region.link.closed or region.link.wait_s > snapshot.longest_wait_s:
        over = _over_budget(snapshot, local)
        return over or _decision(Route.LOCAL, Reason.LINK_CLOSED, local, decode)
    if _comes_home(request, snapshot, local, remote):
        return _decision(Route.LOCAL, Reason.LINK_CONGESTED, local, decode)
    return _decision(Route.OFFLOAD, Reason.ABOVE_THRESHOLD, node, decode, region, local)


def decide_retry(
    request: Q,
    snapshot: Snapshot[Q],
    now_s: float,
    *,
    failed: Decision,
    avoid: frozenset[str],
) -> Decision | Refusal:
    """Choose the nodes for another attempt after `failed`; `avoid` names nodes not to use again.

    A failed offload comes home as a fallback, as far as the fallback budget goes. A failed local
    attempt goes to other nodes, the local ones first.
    """
    decode = _pick_decode(request, snapshot, now_s, avoid=avoid)
    if decode is None:
        return Refusal(Reason.NO_DECODE)
    offloaded = failed.route is Route.OFFLOAD
    reason = Reason.OFFLOAD_FAILED if offloaded else Reason.LOCAL_FAILED
    local, remote = _pick_prefills(request, snapshot, now_s, avoid=avoid)
    if local is not None:
        over = _over_budget(snapshot, local) if offloaded else None
        route = Route.FALLBACK if offloaded else Route.LOCAL
        return over or _decision(route, reason, local, decode)
    if remote is None:
        return Refusal(Reason.NO_PREFILL)
    return _decision(Route.OFFLOAD, reason, remote[1], decode)


def pick_best(nodes: Sequence[NodeState], request: Routable) -> NodeState | None:
    """Return the node with the least prompt tokens to compute before the request is prefilled.

    That is its backlog plus what it has not cached of this prompt; then the one with the least in
    flight; then by name. What a node has counts for more while it starts slowly.
    """
    if len(nodes) < 2:
        return nodes[0] if nodes else None
    prompt_tokens = request.prompt_tokens
    return min(nodes, key=lambda node: _rank(node, prompt_tokens))


def _rank(node: NodeState, prompt_tokens: int) -> tuple[float, float, str]:
    work_tokens = node.backlog_tokens / node.share + prompt_tokens - node.prefix_tokens
    return work_tokens, node.in_flight / node.share, node.record.name


def _pick_decode(
    request: Q, snapshot: Snapshot[Q], now_s: float, *, avoid: frozenset[str]
) -> NodeState | None:
    pool = snapshot.decodes
    return pick_best(
        pool.candidates(request, now_s, avoid) or pool.candidates(request, math.inf, avoid), request
    )


def _pick_prefills(
    request: Q, snapshot: Snapshot[Q], now_s: float, *, avoid: frozenset[str]
) -> tuple[NodeState | None, _Remote[Q] | None]:
    """Return the best local and the best remote node.

    If all are in quarantine, as if none were: a try is better than a refusal.
    """
    local = pick_best(snapshot.local.candidates(request, now_s, avoid), request)
    remote = _pick_remote(request, snapshot, now_s, avoid=avoid)
    if local is None and remote is None and now_s < math.inf:
        return _pick_prefills(request, snapshot, math.inf, avoid=avoid)
    return local, remote


def _pick_remote(
    request: Q, snapshot: Snapshot[Q], now_s: float, *, avoid: frozenset[str]
) -> _Remote[Q] | None:
    """Return the remote node whose cache of this prompt would be here first, and its region.

    Regions behind open links come first.
    """
    best: _Remote[Q] | None = None
    best_rank: tuple[bool, float, int, str] | None = None
    for region in snapshot.remotes:
        node = pick_best(region.pool.candidates(request, now_s, avoid), request)
        if node is None:
            continue
        if len(snapshot.remotes) == 1:
            return region, node
        arrival_s = _arrival_s(node, region, request.prompt_tokens)
        rank = (region.link.closed, arrival_s, node.in_flight, node.record.name)
        if best_rank is None or rank < best_rank:
            best, best_rank = (region, node), rank
    return best


def _comes_home(request: Q, snapshot: Snapshot[Q], local: NodeState, remote: _Remote[Q]) -> bool:
    """Say whether a prompt above the threshold stays local because the link fills.

    Only where that is faster, and while the local backlog is small: those below the threshold
    have nowhere else to go.
    """
    region, node = remote
    uncached_tokens = request.prompt_tokens - _counted_prefix_tokens(local, region, node)
    if uncached_tokens > snapshot.threshold_tokens * region.link.threshold_factor:
        return False
    if local.backlog_tokens > snapshot.threshold_tokens:
        return False
    work_tokens = local.backlog_tokens + request.prompt_tokens - local.prefix_tokens
    local_s = work_tokens / snapshot.tokens_per_s
    return local_s <= _arrival_s(node, region, request.prompt_tokens)


def _over_budget(snapshot: Snapshot[Q], local: NodeState) -> Refusal | None:
    """Refuse what another region was to prefill if the local nodes have too much to do already.

    The prompts below the threshold have nowhere else to go: they must not be drowned.
    """
    excess_tokens = local.backlog_tokens - snapshot.absorb_tokens
    if excess_tokens <= 0:
        return None
    retry_after_s = min(max(excess_tokens / snapshot.tokens_per_s, 1.0), _LONGEST_RETRY_S)
    return Refusal(Reason.FALLBACK_BUDGET, retry_after_s)


def _counted_prefix_tokens(local: NodeState, region: RemoteRegion[Q], remote: NodeState) -> int:
    if region.link.bandwidth is Bandwidth.SCARCE:
        return local.prefix_tokens
    return max(local.prefix_tokens, remote.prefix_tokens)


def _arrival_s(node: NodeState, region: RemoteRegion[Q], prompt_tokens: int) -> float:
    """Return how long until the prompt's cache is here: prefill, or what waits for the link.

    The two overlap, as a cache is sent while it is computed; the link is idle or it is the limit.
    """
    uncached_tokens = prompt_tokens - node.prefix_tokens
    prefill_s = (node.backlog_tokens + uncached_tokens) / region.tokens_per_s
    return max(prefill_s, region.link.wait_s + uncached_tokens / region.link_tokens_per_s)


def _decide_alone(
    request: Routable,
    snapshot: Snapshot[Q],
    *,
    local: NodeState | None,
    remote: _Remote[Q] | None,
    decode: NodeState,
) -> Decision | Refusal:
    """Decide where only local prefill nodes are left, or only remote ones."""
    if local is None:
        if remote is None:
            return Refusal(Reason.NO_PREFILL)
        return _decision(Route.OFFLOAD, Reason.NO_LOCAL_PREFILL, remote[1], decode)
    below = request.prompt_tokens - local.prefix_tokens <= snapshot.threshold_tokens
    reason = Reason.BELOW_THRESHOLD if below else Reason.NO_REMOTE_PREFILL
    return _decision(Route.LOCAL, reason, local, decode)


def _decision(
    route: Route,
    reason: Reason,
    prefill: NodeState,
    decode: NodeState,
    region: RemoteRegion[Q] | None = None,
    other: NodeState | None = None,
) -> Decision:
    """Return the decision; with `region` and `other` a longer prefix there is moved, if it may."""
    move = None
    if region is not None and other is not None:
        abundant = region.link.bandwidth is Bandwidth.ABUNDANT and not region.link.closed
        if abundant and other.prefix_tokens > prefill.prefix_tokens:
            move = Move(other.record, other.prefix_tokens)
    return Decision(route, reason, prefill.record, decode.record, prefill.prefix_tokens, move)
