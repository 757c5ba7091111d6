"""The simulated deployment: requests travel from arrival over prefill and transfer to decode."""

from collections import deque
from dataclasses import dataclass

from prfaas.errors import ConfigError
from prfaas.profile import InstanceProfile
from prfaas.records import NodeRecord, Role
from prfaas.routing import Decision, Move, Refusal
from prfaas.sim.cache import CacheDirectory, PrefixCache
from prfaas.sim.colocated import ColocatedServer
from prfaas.sim.decode import DecodeServer
from prfaas.sim.events import Events
from prfaas.sim.link import FairLink
from prfaas.sim.policy import Policy
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.prefill import PrefillServer, Queue
from prfaas.sim.record import Columns, Outcome, Record, columns_of
from prfaas.sim.request import MODEL, SimRequest
from prfaas.sim.scenario import CacheSpec, Deployment, Fault, FaultKind, Workload
from prfaas.throughput import PrefillCluster


@dataclass(slots=True)
class Region:
    """The prefill nodes of one region; `egress` and `ingress` are None for the PD cluster's own.

    `index` is what `Record.region` says. KV cache leaves by `egress`; what is moved to the region's
    cache comes by `ingress`.
    """

    name: str
    index: int
    profile: InstanceProfile
    pool: IndexedNodes
    queue: Queue | None
    egress: FairLink | None = None
    ingress: FairLink | None = None
    link_bytes_per_s: float = 0.0
    offloads: dict[int, SimRequest] | None = None


class World:
    """Runs one policy over one workload. Policies may read everything, and change what is public.

    Deterministic: the same deployment, workload, faults and policy give the same columns.
    """

    def __init__(
        self,
        deployment: Deployment,
        workload: Workload,
        policy: Policy,
        *,
        faults: tuple[Fault, ...] = (),
    ) -> None:
        self.deployment = deployment
        self.workload = workload
        self.policy = policy
        self.events = Events()
        self.record = Record(len(workload.arrival_s))
        self.pd = self._make_region(deployment.pd.name, 0, deployment.pd.profile)
        self.decodes = IndexedNodes()
        self.remotes = {
            spec.name: self._make_remote(spec, index)
            for index, spec in enumerate(deployment.remotes, 1)
        }
        self.prefill_servers: dict[str, PrefillServer | ColocatedServer] = {}
        self.decode_servers: dict[str, DecodeServer | ColocatedServer] = {}
        self.conversions = 0
        self.arrived = 0
        self.ended = 0
        self._regions = {self.pd.name: self.pd, **self.remotes}
        self._shared_caches: dict[str, PrefixCache] = {}
        self._build()
        self._faults = faults

    def run(self, until_s: float = float("inf")) -> Columns:
        """Run to the end of the last request, or to a time, and return what became of each."""
        for fault in self._faults:
            self._schedule(fault)
        self.policy.start(self)
        self._arrivals = self.workload.arrival_s.tolist()
        self._prompts = self.workload.prompt_tokens.tolist()
        self._outputs = self.workload.output_tokens.tolist()
        self.events.at(self._arrivals[0], self._arrive, 0)
        if self.policy.period_s > 0:
            self.events.at(self.policy.period_s, self._act)
        self.events.run(until_s)
        return columns_of(self.record, self.workload)

    def convert(self, name: str, role: Role) -> None:
        """Drain a node of the PD cluster and give it another role; it is away for a while."""
        if role is Role.DECODE:
            prefill = self.prefill_servers[name]
            prefill.drain(lambda: self._after_conversion(name, role))
        else:
            decode = self.decode_servers[name]
            decode.drain(lambda: self._after_conversion(name, role))
        self.conversions += 1

    # Construction.

    def _make_region(self, name: str, index: int, profile: InstanceProfile) -> Region:
        queue: Queue | None = deque() if self.deployment.central_queue else None
        return Region(name, index, profile, IndexedNodes(CacheDirectory()), queue)

    def _make_remote(self, spec: PrefillCluster, index: int) -> Region:
        region = self._make_region(spec.name, index, spec.profile)
        region.link_bytes_per_s = spec.usable_bytes_per_s
        region.egress = FairLink(self.events, spec.usable_bytes_per_s)
        region.ingress = FairLink(self.events, spec.usable_bytes_per_s)
        region.offloads = {}
        return region

    def _build(self) -> None:
        pd = self.deployment.pd
        add = self._add_colocated if self.deployment.chunk_tokens else self._add_prefill
        for index in range(pd.prefill):
            add(f"{pd.name}-prefill-{index}", self.pd)
        for index in range(pd.decode):
            self._add_decode(f"{pd.name}-decode-{index}")
        for spec in self.deployment.remotes:
            for index in range(spec.instances):
                self._add_prefill(f"{spec.name}-prefill-{index}", self.remotes[spec.name])

    def _add_prefill(self, name: str, region: Region) -> None:
        server = PrefillServer(
            _record(name, Role.PREFILL, region.name),
            self.events,
            region.profile.prefill_s,
            self._cache(region),
            region.pool,
            queue=region.queue,
            batch_tokens=int(self.deployment.batch_tokens),
            on_start=self._on_prefill_start,
            on_done=self._on_prefill_done,
        )
        self.prefill_servers[name] = server
        region.pool.join(server)

    def _add_colocated(self, name: str, region: Region) -> None:
        server = ColocatedServer(
            _record(name, Role.PREFILL, region.name),
            self.events,
            region.profile.prefill_s,
            self._decode_steps(),
            self._cache(region),
            region.pool,
            chunk_tokens=self.deployment.chunk_tokens,
            on_start=self._on_prefill_start,
            on_done=self._on_prefill_done,
            on_first=self._on_first_token,
            on_decoded=self._on_decode_done,
        )
        self.prefill_servers[name] = self.decode_servers[name] = server
        region.pool.join(server)

    def _add_decode(self, name: str) -> None:
        server = DecodeServer(
            _record(name, Role.DECODE, self.pd.name),
            self.events,
            self._decode_steps(),
            PrefixCache(0, self.decodes.directory, stateful=False),
            self.decodes,
            on_first=self._on_first_token,
            on_done=self._on_decode_done,
        )
        self.decode_servers[name] = server
        self.decodes.join(server)

    def _cache(self, region: Region) -> PrefixCache:
        spec: CacheSpec = self.deployment.cache
        if not spec.shared:
            return _new_cache(spec, spec.tokens_per_node, region)
        known = self._shared_caches.get(region.name)
        if known is None:
            nodes = self.deployment.pd.prefill + self.deployment.pd.decode
            for remote in self.deployment.remotes:
                nodes = remote.instances if remote.name == region.name else nodes
            known = _new_cache(spec, spec.tokens_per_node * nodes, region)
            self._shared_caches[region.name] = known
        return known

    def _decode_steps(self) -> list[float]:
        decode = self.deployment.pd.profile.decode
        batch = decode.batch_within(self.deployment.tpot_s) if decode else 0
        if decode is None or batch < 1:
            raise ConfigError(f"tpot_s = {self.deployment.tpot_s}: no batch decodes that fast")
        return [0.0, *(decode.step_s.at(size) for size in range(1, batch + 1))]

    # The way of a request.

    def _arrive(self, index: int) -> None:
        following = index + 1
        self.arrived = following
        if following < len(self._arrivals):
            self.events.at(self._arrivals[following], self._arrive, following)
        chains = self.workload.chains
        request = SimRequest(
            index, self._prompts[index], self._outputs[index], chains[index] if chains else ()
        )
        self._follow(request, self.policy.place(request, self.events.now_s))

    def _follow(self, request: SimRequest, decision: Decision | Refusal) -> None:
        if isinstance(decision, Refusal):
            self.record.outcome[request.index] = Outcome.REFUSED
            self.ended += 1
            return
        request.decision = decision
        record = self.record
        record.note_route(request.index, decision.route)
        record.attempts[request.index] = request.attempt
        prefill = self.prefill_servers[decision.prefill.name]
        prefill.reserve(request)
        self.decode_servers[decision.decode.name].expect()
        region = self._regions[decision.prefill.region]
        record.region[request.index] = region.index
        if region.offloads is None and decision.move is None:
            prefill.submit(request)
            return
        if region.offloads is not None:
            region.offloads[request.index] = request
            if region.egress is not None and not region.egress.capacity:
                self._set_offload_timer(region, request)
        if decision.move is None:
            delay_s = self.deployment.rtt_s / 2
            self.events.at(self.events.now_s + delay_s, self._deliver, (request, request.attempt))
        else:
            self._move(request, decision.move, region)

    def _move(self, request: SimRequest, move: Move, target: Region) -> None:
        """Bring a prefix to where the request is computed, then deliver the request."""
        source = self._regions[move.source.region]
        link = target.ingress if target.ingress is not None else source.egress
        if link is None:
            raise AssertionError("a move inside a region")
        decision = request.decision
        have_tokens = decision.prefix_tokens if decision else 0
        curve = source.profile.kv_bytes
        size_bytes = curve.at(move.tokens) - (curve.at(have_tokens) if have_tokens else 0.0)
        request.flow = link.open(
            max(size_bytes, 1.0), self._on_moved, (request, request.attempt, move)
        )

    def _on_moved(self, argument: tuple[SimRequest, int, Move]) -> None:
        request, attempt, move = argument
        if request.attempt != attempt or request.decision is None:
            return
        request.flow = None
        server = self.prefill_servers.get(request.decision.prefill.name)
        if server is not None:
            server.cache.insert(tuple(pair for pair in request.chain if pair[1] <= move.tokens))
        delay_s = self.deployment.rtt_s
        self.events.at(self.events.now_s + delay_s, self._deliver, (request, attempt))

    def _deliver(self, argument: tuple[SimRequest, int]) -> None:
        request, attempt = argument
        decision = request.decision
        if request.attempt != attempt or decision is None:
            return
        server = self.prefill_servers.get(decision.prefill.name)
        if server is None or not server.up:
            if server is not None:
                server.unreserve(request)
            self._forget_decode(decision)
            self._retry(request, decision.prefill.name)
            return
        server.submit(request)

    def _on_prefill_start(self, request: SimRequest, service_s: float) -> None:
        index = request.index
        record = self.record
        record.prefill_start_s[index] = self.events.now_s
        record.uncached_tokens[index] = request.uncached_tokens
        region = self._region_of(request)
        if region.egress is None:
            return
        sent_tokens = request.prompt_tokens
        if request.chain:
            sent_tokens -= self.pd.pool.prefix_tokens(request)
        size_bytes = region.profile.kv_bytes.at(sent_tokens)
        record.kv_bytes[index] = size_bytes
        early = 1 - 1 / self.deployment.layers
        produced = size_bytes * early / service_s if early and service_s > 0 else float("inf")
        if produced < float("inf"):
            request.flow = region.egress.open(
                size_bytes, self._on_sent, (request, request.attempt), produced_per_s=produced
            )

    def _on_prefill_done(self, request: SimRequest) -> None:
        self.record.prefill_end_s[request.index] = self.events.now_s
        region = self._region_of(request)
        if self.deployment.chunk_tokens:
            self._admit((request, request.attempt))
        elif region.egress is None:
            size_bytes = region.profile.kv_bytes.at(request.uncached_tokens)
            exposed_s = size_bytes / self.deployment.layers / self.deployment.local_bytes_per_s
            arrival_s = self.events.now_s + exposed_s
            self.events.at(arrival_s, self._admit, (request, request.attempt))
        elif request.flow is not None:
            region.egress.release(request.flow)
        else:
            size_bytes = self.record.kv_bytes[request.index]
            request.flow = region.egress.open(size_bytes, self._on_sent, (request, request.attempt))

    def _on_sent(self, argument: tuple[SimRequest, int]) -> None:
        request, _ = argument
        request.flow = None
        self.events.at(self.events.now_s + self.deployment.rtt_s / 2, self._admit, argument)

    def _admit(self, argument: tuple[SimRequest, int]) -> None:
        request, attempt = argument
        decision = request.decision
        if request.attempt != attempt or decision is None:
            return
        region = self._region_of(request)
        if region.offloads is not None:
            region.offloads.pop(request.index, None)
            if request.chain and self.deployment.cache.shared:
                shared = self._shared_caches.get(self.pd.name)
                if shared is not None:
                    shared.insert(request.chain)
        server = self.decode_servers.get(decision.decode.name)
        if server is None or not server.up:
            if server is not None:
                server.forget()
            self._retry(request, decision.decode.name)
            return
        self.record.kv_arrival_s[request.index] = self.events.now_s
        server.admit(request)

    def _on_first_token(self, request: SimRequest, first_token_s: float) -> None:
        if not request.decoded_tokens:
            self.record.first_token_s[request.index] = first_token_s

    def _on_decode_done(self, request: SimRequest) -> None:
        record = self.record
        record.finish_s[request.index] = self.events.now_s
        record.outcome[request.index] = Outcome.ANSWERED
        self.ended += 1

    def _region_of(self, request: SimRequest) -> Region:
        decision = request.decision
        if decision is None:
            raise AssertionError("a request under way has a decision")
        return self._regions[decision.prefill.region]

    # Failures.

    def _retry(self, request: SimRequest, failed_node: str) -> None:
        """Begin another attempt; what the failed one had reserved is the caller's to give back."""
        failed = request.decision
        if failed is None:
            return
        region = self._regions[failed.prefill.region]
        if region.offloads is not None:
            region.offloads.pop(request.index, None)
        if request.flow is not None:
            request.flow.link.cancel(request.flow)
            request.flow = None
        request.attempt += 1
        request.avoid |= {failed_node}
        request.decision = None
        self._follow(request, self.policy.place_again(request, self.events.now_s, failed))

    def _set_offload_timer(self, region: Region, request: SimRequest) -> None:
        self.events.at(
            self.events.now_s + self.deployment.offload_timeout_s,
            self._on_offload_timeout,
            (region, request, request.attempt),
        )

    def _on_offload_timeout(self, argument: tuple[Region, SimRequest, int]) -> None:
        region, request, attempt = argument
        decision = request.decision
        if request.attempt != attempt or decision is None or region.egress is None:
            return
        if region.offloads is None or request.index not in region.offloads:
            return
        if region.egress.capacity:
            return
        self._forget_decode(decision)
        self._retry(request, decision.prefill.name)

    def _schedule(self, fault: Fault) -> None:
        if fault.kind is FaultKind.LINK_RATE:
            if fault.target not in self.remotes:
                raise ConfigError(f"fault: target = {fault.target!r}: no PrfaaS cluster")
        elif fault.target not in self.prefill_servers and fault.target not in self.decode_servers:
            raise ConfigError(f"fault: target = {fault.target!r}: no node of that name")
        self.events.at(fault.at_s, self._begin_fault, fault)
        if fault.until_s < float("inf"):
            self.events.at(fault.until_s, self._end_fault, fault)

    def _begin_fault(self, fault: Fault) -> None:
        if fault.kind is FaultKind.LINK_RATE:
            self._set_link(self.remotes[fault.target], fault.value)
        elif fault.kind is FaultKind.SLOW:
            self._set_slowness(fault.target, fault.value)
        else:
            self._kill(fault.target)

    def _end_fault(self, fault: Fault) -> None:
        if fault.kind is FaultKind.LINK_RATE:
            self._set_link(self.remotes[fault.target], 1.0)
        elif fault.kind is FaultKind.SLOW:
            self._set_slowness(fault.target, 1.0)
        else:
            server = self._server(fault.target)
            if server is not None:
                server.recover()

    def _server(self, name: str) -> PrefillServer | DecodeServer | ColocatedServer | None:
        return self.prefill_servers.get(name) or self.decode_servers.get(name)

    def _set_slowness(self, name: str, slowness: float) -> None:
        if name in self.decode_servers:
            self.decode_servers[name].set_slowness(slowness)
        elif name in self.prefill_servers:
            self.prefill_servers[name].slowness = slowness

    def _set_link(self, region: Region, factor: float) -> None:
        for link in (region.egress, region.ingress):
            if link is not None:
                link.set_capacity(region.link_bytes_per_s * factor)
        if not factor:
            for request in list((region.offloads or {}).values()):
                self._set_offload_timer(region, request)

    def _kill(self, name: str) -> None:
        server = self._server(name)
        if server is None or not server.up:
            return
        is_prefill = isinstance(server, PrefillServer)
        for request in server.fail():
            if request.decision is not None and is_prefill:
                self._forget_decode(request.decision)
            self._retry(request, name)

    def _forget_decode(self, decision: Decision) -> None:
        server = self.decode_servers.get(decision.decode.name)
        if server is not None:
            server.forget()

    # Time passing.

    def _after_conversion(self, name: str, role: Role) -> None:
        """Take the drained node away, and bring it back in its new role after a while."""
        if role is Role.DECODE:
            del self.prefill_servers[name]
        else:
            del self.decode_servers[name]

        def join(_: None) -> None:
            if role is Role.DECODE:
                self._add_decode(name)
            else:
                self._add_prefill(name, self.pd)

        self.events.at(self.events.now_s + self.deployment.conversion_s, join)

    def _act(self, _: None) -> None:
        self.policy.act(self.events.now_s)
        if self.ended < len(self._arrivals):
            self.events.at(self.events.now_s + self.policy.period_s, self._act)


def _record(name: str, role: Role, region: str) -> NodeRecord:
    return NodeRecord(name, role, region, url="", session="", model_id=MODEL)


def _new_cache(spec: CacheSpec, tokens: float, region: Region) -> PrefixCache:
    return PrefixCache(
        tokens,
        region.pool.directory,
        stateful=spec.stateful,
        checkpoint_tokens=spec.checkpoint_tokens,
    )
