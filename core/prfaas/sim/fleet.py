"""The servers and links of a deployment: made from it, converted, killed and slowed by name."""

from collections.abc import Callable
from dataclasses import dataclass

from prfaas.errors import ConfigError
from prfaas.profile import InstanceProfile
from prfaas.records import NodeRecord, Role
from prfaas.sim.cache import CacheDirectory, NodeCache
from prfaas.sim.colocated import ColocatedServer
from prfaas.sim.decode import DecodeServer
from prfaas.sim.events import Events
from prfaas.sim.link import FairLink
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.prefill import PrefillQueue, PrefillServer
from prfaas.sim.request import MODEL, SimRequest
from prfaas.sim.scenario import CacheSpec, Deployment, Fault, FaultKind
from prfaas.throughput import PrefillCluster


@dataclass(slots=True)
class Region:
    """The prefill nodes of one region; `egress` and `ingress` are None for the PD cluster's own.

    `index` is what `Record.region` says. KV cache leaves by `egress`; what is moved to the region's
    cache comes by `ingress`. `offloads` are the requests that need these links, by their index.
    """

    name: str
    index: int
    profile: InstanceProfile
    pool: IndexedNodes
    queue: PrefillQueue | None
    egress: FairLink | None = None
    ingress: FairLink | None = None
    link_bytes_per_s: float = 0.0
    offloads: dict[int, SimRequest] | None = None


@dataclass(frozen=True, slots=True)
class Handlers:
    """What servers call: see `PrefillServer` and `DecodeServer`."""

    on_prefill_start: Callable[[SimRequest, float], None]
    on_prefill_done: Callable[[SimRequest], None]
    on_first_token: Callable[[SimRequest, float], None]
    on_decode_done: Callable[[SimRequest], None]


class Fleet:
    """All servers by the name of their node.

    A node that drains stays until it is empty. One that is killed on its way to another role is
    down in that role until the fault ends.
    """

    def __init__(self, deployment: Deployment, events: Events, handlers: Handlers) -> None:
        self.prefill: dict[str, PrefillServer | ColocatedServer] = {}
        self.decode: dict[str, DecodeServer | ColocatedServer] = {}
        self.decodes = IndexedNodes()
        self.conversions = 0
        self._deployment = deployment
        self._events = events
        self._handlers = handlers
        self._steps_s: list[float] = []
        self._shared_caches: dict[str, NodeCache] = {}
        self._down: set[str] = set()
        self._slowness: dict[str, float] = {}
        self.pd = self._make_region(deployment.pd.name, 0, deployment.pd.profile)
        self.remotes = {
            spec.name: self._make_remote(spec, index)
            for index, spec in enumerate(deployment.remotes, 1)
        }
        self.regions = {self.pd.name: self.pd, **self.remotes}
        self._build()

    def shared_cache(self, region: Region) -> NodeCache | None:
        """Return the cache that the nodes of a region have together, if they do."""
        return self._shared_caches.get(region.name)

    def check(self, fault: Fault) -> None:
        """Check that what a fault is to be done to is there.

        Raises:
            ConfigError: it is not.
        """
        if fault.kind is FaultKind.LINK_RATE:
            if fault.target not in self.remotes:
                raise ConfigError(f"fault: target = {fault.target!r}: no PrfaaS cluster")
        elif self._server(fault.target) is None:
            raise ConfigError(f"fault: target = {fault.target!r}: no node of that name")

    def convert(self, name: str, role: Role) -> None:
        """Drain a node of the PD cluster and give it another role; it is away for a while."""
        server = self.prefill[name] if role is Role.DECODE else self.decode[name]
        if server.record.region != self.pd.name:
            raise AssertionError(f"{name}: only nodes of the PD cluster change roles")
        server.drain(lambda: self._leave(name, role))
        self.conversions += 1

    def kill(self, name: str) -> list[SimRequest]:
        """Take a node down and return the requests that were there."""
        self._down.add(name)
        server = self._server(name)
        return server.fail() if server is not None and server.up else []

    def revive(self, name: str) -> None:
        """Bring a node back, empty."""
        self._down.discard(name)
        server = self._server(name)
        if server is not None and not server.up:
            server.recover()

    def set_slowness(self, name: str, slowness: float) -> None:
        """Let a node take that many times longer from now on, in any role."""
        self._slowness[name] = slowness
        server = self._server(name)
        if server is not None:
            server.set_slowness(slowness)

    def _server(self, name: str) -> PrefillServer | DecodeServer | ColocatedServer | None:
        return self.prefill.get(name) or self.decode.get(name)

    def _leave(self, name: str, role: Role) -> None:
        """Take the drained node away, and bring it back in its new role after a while."""
        if role is Role.DECODE:
            del self.prefill[name]
        else:
            del self.decode[name]

        def join(_: None) -> None:
            if role is Role.DECODE:
                self._add_decode(name)
            else:
                self._add_prefill(name, self.pd)

        self._events.at(self._events.now_s + self._deployment.conversion_s, join)

    # Construction.

    def _build(self) -> None:
        pd = self._deployment.pd
        add = self._add_colocated if self._deployment.chunk_tokens else self._add_prefill
        for index in range(pd.prefill):
            add(f"{pd.name}-prefill-{index}", self.pd)
        for index in range(pd.decode):
            self._add_decode(f"{pd.name}-decode-{index}")
        for spec in self._deployment.remotes:
            for index in range(spec.instances):
                self._add_prefill(f"{spec.name}-prefill-{index}", self.remotes[spec.name])

    def _make_region(self, name: str, index: int, profile: InstanceProfile) -> Region:
        queue = PrefillQueue() if self._deployment.central_queue else None
        return Region(name, index, profile, IndexedNodes(CacheDirectory()), queue)

    def _make_remote(self, spec: PrefillCluster, index: int) -> Region:
        region = self._make_region(spec.name, index, spec.profile)
        region.link_bytes_per_s = spec.usable_bytes_per_s
        region.egress = FairLink(self._events, spec.usable_bytes_per_s)
        region.ingress = FairLink(self._events, spec.usable_bytes_per_s)
        region.offloads = {}
        return region

    def _add_prefill(self, name: str, region: Region) -> None:
        server = PrefillServer(
            _record(name, Role.PREFILL, region.name),
            self._events,
            region.profile.prefill_s,
            self._cache(region),
            region.pool,
            queue=region.queue,
            batch_tokens=int(self._deployment.batch_tokens),
            on_start=self._handlers.on_prefill_start,
            on_done=self._handlers.on_prefill_done,
        )
        self.prefill[name] = server
        self._join(server)

    def _add_colocated(self, name: str, region: Region) -> None:
        server = ColocatedServer(
            _record(name, Role.PREFILL, region.name),
            self._events,
            region.profile.prefill_s,
            self._decode_steps(),
            self._cache(region),
            region.pool,
            chunk_tokens=self._deployment.chunk_tokens,
            on_start=self._handlers.on_prefill_start,
            on_done=self._handlers.on_prefill_done,
            on_first=self._handlers.on_first_token,
            on_decoded=self._handlers.on_decode_done,
        )
        self.prefill[name] = self.decode[name] = server
        self._join(server)

    def _add_decode(self, name: str) -> None:
        server = DecodeServer(
            _record(name, Role.DECODE, self.pd.name),
            self._events,
            self._decode_steps(),
            NodeCache(0, self.decodes.directory, stateful=False),
            self.decodes,
            on_first=self._handlers.on_first_token,
            on_done=self._handlers.on_decode_done,
        )
        self.decode[name] = server
        self._join(server)

    def _join(self, server: PrefillServer | DecodeServer | ColocatedServer) -> None:
        name = server.record.name
        server.slowness = self._slowness.get(name, 1.0)
        if name not in self._down:
            server.recover()

    def _cache(self, region: Region) -> NodeCache:
        spec = self._deployment.cache
        if not spec.shared:
            return _new_cache(spec, region, 1)
        known = self._shared_caches.get(region.name)
        if known is None:
            nodes = {remote.name: remote.instances for remote in self._deployment.remotes}
            pd = self._deployment.pd
            nodes[pd.name] = pd.prefill + pd.decode
            known = _new_cache(spec, region, nodes[region.name])
            self._shared_caches[region.name] = known
        return known

    def _decode_steps(self) -> list[float]:
        if not self._steps_s:
            decode = self._deployment.pd.profile.decode
            tpot_s = self._deployment.tpot_s
            batch = decode.batch_within(tpot_s) if decode else 0
            if decode is None or batch < 1:
                raise ConfigError(f"tpot_s = {tpot_s}: no batch decodes that fast")
            self._steps_s = [0.0, *(decode.step_s.at(size) for size in range(1, batch + 1))]
        return self._steps_s


def _record(name: str, role: Role, region: str) -> NodeRecord:
    return NodeRecord(name, role, region, url="", session="", model_id=MODEL)


def _new_cache(spec: CacheSpec, region: Region, nodes: int) -> NodeCache:
    return NodeCache(
        spec.tokens_per_node * nodes,
        region.pool.directory,
        stateful=spec.stateful,
        checkpoint_tokens=spec.checkpoint_tokens,
        nodes=nodes,
    )
