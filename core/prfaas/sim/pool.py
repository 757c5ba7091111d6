"""Servers of one role in one region, kept in order of load: a routing pool that needs no scan."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import Protocol

from prfaas.records import NodeRecord
from prfaas.routing import NodeState
from prfaas.sim.cache import CacheDirectory, NodeCache
from prfaas.sim.request import SimRequest

_MAX_HOLDERS = 16
_RANK_BITS = 20
_MAX_RANK = (1 << _RANK_BITS) - 1
_UNLISTED = -(1 << 200)  # below all loads


class Server(Protocol):
    """What a pool needs of its members.

    `rank` and `listed` are the pool's: the place of its name among the members', and the load of
    its newest entry.
    """

    record: NodeRecord
    in_flight: int
    backlog_tokens: int
    rank: int
    listed: int
    cache: NodeCache


class IndexedNodes:
    """The servers that take requests, the least loaded one at hand in O(log servers).

    `candidates` gives the least loaded server and those that hold the longest prefix (at most 16,
    in the order they got it). `prfaas.routing.pick_best` chooses from them what it would choose
    from all, unless 17 or more hold the longest prefix, or one is best that holds a shorter one,
    longer than what the least loaded server holds.
    """

    def __init__(self, directory: CacheDirectory | None = None) -> None:
        self.directory = directory or CacheDirectory()
        self._members: dict[str, Server] = {}
        self._of_cache: dict[NodeCache, Server] = {}
        self._ranked: list[Server] = []
        self._heap: list[int] = []
        self._is_stale = False

    def __len__(self) -> int:
        return len(self._members)

    def servers(self) -> list[Server]:
        """Return the members, in the order they joined."""
        return list(self._members.values())

    def join(self, server: Server) -> None:
        """Let the server be chosen from now on; a member of the same name leaves."""
        namesake = self._members.get(server.record.name)
        if namesake is not None and namesake is not server:
            self.leave(namesake)
        self._members[server.record.name] = server
        self._of_cache[server.cache] = server
        server.listed = _UNLISTED
        self._is_stale = True

    def leave(self, server: Server) -> None:
        """Choose the server no more; nothing to do if it is no member, but a namesake is."""
        if self._members.get(server.record.name) is server:
            del self._members[server.record.name]
            self._of_cache.pop(server.cache, None)
            server.listed = _UNLISTED
            self._is_stale = True

    def touch(self, server: Server) -> None:
        """Note that the load of the server fell; that it rose is found out when it comes up."""
        load = _load(server)
        if load >= server.listed:
            return
        server.listed = load
        heappush(self._heap, load)
        if len(self._heap) > 3 * len(self._ranked) + 64:
            self._heap[:] = {other.listed for other in self._ranked}
            heapify(self._heap)

    def candidates(
        self, request: SimRequest, now_s: float, avoid: frozenset[str]
    ) -> Sequence[NodeState]:
        """Return the servers that may be the best; those down or draining are not members."""
        del now_s  # a server that is down is no member: there is no quarantine here
        if avoid:
            return self._list(request, avoid)
        server = self._least_loaded()
        if server is None:
            return ()
        backlog_tokens, in_flight = server.backlog_tokens, server.in_flight
        tokens = 0
        if request.chain:
            tokens, holders = self.directory.longest(request.chain, request.prompt_tokens)
        if not tokens:
            return (NodeState(server.record, in_flight, 0, 0.0, backlog_tokens),)
        if server.cache in holders:
            return (NodeState(server.record, in_flight, tokens, 0.0, backlog_tokens),)
        prefix_tokens = server.cache.lookup(request.chain, request.prompt_tokens)
        states = [NodeState(server.record, in_flight, prefix_tokens, 0.0, backlog_tokens)]
        for cache, _ in zip(holders, range(_MAX_HOLDERS), strict=False):
            holder = self._of_cache.get(cache)
            if holder is not None:
                states.append(_state(holder, tokens))
        return states

    def _least_loaded(self) -> Server | None:
        """Return the first of the heap; its entries never say more than a server has."""
        if self._is_stale:
            self._rank()
        heap, ranked = self._heap, self._ranked
        while heap:
            listed = heap[0]
            server = ranked[listed & _MAX_RANK]
            if listed != server.listed:
                heappop(heap)
                continue
            load = _load(server)
            if load == listed:
                return server
            server.listed = load
            heapreplace(heap, load)
        return None

    def _rank(self) -> None:
        """Begin anew, after members came or went."""
        self._ranked = sorted(self._members.values(), key=attrgetter("record.name"))
        for rank, server in enumerate(self._ranked):
            server.rank = rank
            server.listed = _load(server)
        self._heap = [server.listed for server in self._ranked]
        heapify(self._heap)
        self._is_stale = False

    def prefix_tokens(self, request: SimRequest) -> int:
        """Return the longest prefix of the prompt that any server of the pool holds."""
        return self.directory.longest(request.chain, request.prompt_tokens)[0]

    def _list(self, request: SimRequest, avoid: frozenset[str]) -> list[NodeState]:
        return [
            _state(server, server.cache.lookup(request.chain, request.prompt_tokens))
            for server in self._members.values()
            if server.record.name not in avoid
        ]


def _load(server: Server) -> int:
    """Return backlog, requests and rank in one number, which compares as they do in this order."""
    return (server.backlog_tokens << _RANK_BITS + 24) + (
        server.in_flight << _RANK_BITS | server.rank
    )


def _state(server: Server, prefix_tokens: int) -> NodeState:
    return NodeState(server.record, server.in_flight, prefix_tokens, 0.0, server.backlog_tokens)
