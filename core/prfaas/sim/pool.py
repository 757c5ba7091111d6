"""Servers of one role in one region, kept in order of load: a routing pool that needs no scan."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from prfaas.records import NodeRecord
from prfaas.routing import NodeState
from prfaas.sim.cache import CacheDirectory, NodeCache
from prfaas.sim.request import SimRequest

_MAX_HOLDERS = 16


class Server(Protocol):
    """What a pool needs of its members.

    `ticket` and `listed` are the pool's: the number of the server's entry, 0 if it has none, and
    the load (tokens, requests) in it.
    """

    record: NodeRecord
    in_flight: int
    backlog_tokens: int
    ticket: int
    listed: tuple[int, int]
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
        self._heap: list[tuple[int, int, str, int, Server]] = []

        self._ticket = 0  # of the newest entry: a node may come back as another server

    def __len__(self) -> int:
        return len(self._members)

    def servers(self) -> list[Server]:
        """Return the members, in the order they joined."""
        return list(self._members.values())

    def join(self, server: Server) -> None:
        """Let the server be chosen from now on."""
        self._members[server.record.name] = server
        self._of_cache[server.cache] = server
        self.touch(server)

    def leave(self, server: Server) -> None:
        """Choose the server no more."""
        if self._members.pop(server.record.name, None) is not None:
            self._of_cache.pop(server.cache, None)
            server.ticket = 0

    def touch(self, server: Server) -> None:
        """Note that the load of the server fell; that it rose is found out when it comes up."""
        name = server.record.name
        if name not in self._members:
            return
        load = server.backlog_tokens, server.in_flight
        if server.ticket and server.listed <= load:
            return
        self._ticket = ticket = self._ticket + 1
        server.ticket, server.listed = ticket, load
        heap = self._heap
        heappush(heap, (*load, name, ticket, server))
        if len(heap) > 3 * len(self._members) + 64:
            heap[:] = [entry for entry in heap if entry[3] == entry[4].ticket]
            heapify(heap)

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
        heap = self._heap
        while heap:
            backlog_tokens, in_flight, name, ticket, server = heap[0]
            if ticket != server.ticket:
                heappop(heap)
            elif backlog_tokens == server.backlog_tokens and in_flight == server.in_flight:
                return server
            else:
                server.listed = server.backlog_tokens, server.in_flight
                heapreplace(heap, (*server.listed, name, ticket, server))
        return None

    def prefix_tokens(self, request: SimRequest) -> int:
        """Return the longest prefix of the prompt that any server of the pool holds."""
        return self.directory.longest(request.chain, request.prompt_tokens)[0]

    def _list(self, request: SimRequest, avoid: frozenset[str]) -> list[NodeState]:
        return [
            _state(server, server.cache.lookup(request.chain, request.prompt_tokens))
            for server in self._members.values()
            if server.record.name not in avoid
        ]


def _state(server: Server, prefix_tokens: int) -> NodeState:
    return NodeState(server.record, server.in_flight, prefix_tokens, 0.0, server.backlog_tokens)
