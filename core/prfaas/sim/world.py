"""The simulated deployment: requests travel from arrival over prefill and transfer to decode."""

import gc

from prfaas.routing import Decision, Move, Refusal
from prfaas.sim.events import Events
from prfaas.sim.faults import Faults
from prfaas.sim.fleet import Fleet, Handlers, Region
from prfaas.sim.policy import Policy
from prfaas.sim.record import Columns, Outcome, Record, columns_of
from prfaas.sim.request import SimRequest
from prfaas.sim.scenario import Deployment, Fault, Workload

__all__ = ["Region", "World"]

_NAN = float("nan")
_ANSWERED = int(Outcome.ANSWERED)


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
        handlers = Handlers(
            self._on_prefill_start,
            self._on_prefill_done,
            self._on_first_token,
            self._on_decode_done,
        )
        self.fleet = fleet = Fleet(deployment, self.events, handlers)
        self.pd, self.remotes, self.decodes = fleet.pd, fleet.remotes, fleet.decodes
        self.prefill_servers, self.decode_servers = fleet.prefill, fleet.decode
        self.convert = fleet.convert
        self.arrived = 0
        self._acts = False
        self.ended = 0
        for fault in faults:
            fleet.check(fault)
        self._faults = Faults(faults, self.events, self)
        self._arrivals: list[float] = []
        self._prompts: list[int] = []
        self._outputs: list[int] = []

    @property
    def conversions(self) -> int:
        """How many nodes were told to change roles."""
        return self.fleet.conversions

    def run(self, until_s: float = float("inf")) -> Columns:
        """Run to the end of the last request, or to a time, and return what became of each."""
        self.policy.start(self)
        self._arrivals = self.workload.arrival_s.tolist()
        self._prompts = self.workload.prompt_tokens.tolist()
        self._outputs = self.workload.output_tokens.tolist()
        self.events.at(self._arrivals[0], self._arrive, 0)
        collects = gc.isenabled()
        gc.disable()  # a run leaves no cycles, and looking for them costs a tenth of its time
        try:
            self.events.run(until_s)
        finally:
            if collects:
                gc.enable()
        return columns_of(self.record, self.workload)

    # The way of a request.

    def _arrive(self, index: int) -> None:
        following = index + 1
        self.arrived = following
        if not self._acts and self.policy.period_s > 0:
            self._act_next()
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
        prefill = self.prefill_servers.get(decision.prefill.name)
        decode = self.decode_servers.get(decision.decode.name)
        if prefill is None or decode is None:  # it has another role by now
            self._retry(request, (decision.decode if prefill else decision.prefill).name)
            return
        prefill.reserve(request)
        decode.expect()
        request.expected_at = decode
        request.region = region = self.fleet.regions[decision.prefill.region]
        record.region[request.index] = region.index
        if region.offloads is None and decision.move is None:
            prefill.submit(request)
            return
        request.reserved_at = prefill
        if region.offloads is not None:
            self._watch_link(region, request)
        if decision.move is None:
            delay_s = self.deployment.rtt_s / 2
            self.events.at(self.events.now_s + delay_s, self._deliver, (request, request.attempt))
        else:
            self._move(request, decision.move, region)

    def _move(self, request: SimRequest, move: Move, target: Region) -> None:
        """Bring a prefix to where the request is computed, then deliver the request."""
        source = self.fleet.regions[move.source.region]
        link = target.ingress
        if link is None:
            link = source.egress
            self._watch_link(source, request)
        if link is None or request.decision is None:
            raise AssertionError("a move inside a region")
        missing_tokens = move.tokens - request.decision.prefix_tokens
        argument = (request, request.attempt, move)
        request.flow = link.open(
            source.profile.kv_bytes.at(missing_tokens), self._on_moved, argument
        )

    def _on_moved(self, argument: tuple[SimRequest, int, Move]) -> None:
        request, attempt, move = argument
        request.flow = None
        server = request.reserved_at
        if server is None:
            raise AssertionError("a move that outlived its attempt")
        self._unwatch(move.source.region, request)
        server.cache.insert(tuple(pair for pair in request.chain if pair[1] <= move.tokens))
        delay_s = self.deployment.rtt_s
        self.events.at(self.events.now_s + delay_s, self._deliver, (request, attempt))

    def _deliver(self, argument: tuple[SimRequest, int]) -> None:
        request, attempt = argument
        server = request.reserved_at
        if request.attempt != attempt or server is None:
            return
        if server.up:
            request.reserved_at = None
            server.submit(request)
        else:
            self._retry(request, server.record.name)

    def _on_prefill_start(self, request: SimRequest, service_s: float) -> None:
        index = request.index
        record = self.record
        if not request.decoded_tokens:
            record.prefill_start_s[index] = self.events.now_s
        record.uncached_tokens[index] = request.uncached_tokens
        region = request.region
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
        if not request.decoded_tokens:
            self.record.prefill_end_s[request.index] = self.events.now_s
        region = request.region
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
        server = request.expected_at
        if request.attempt != attempt or server is None:
            return
        region = request.region
        if region.offloads is not None:
            region.offloads.pop(request.index, None)
            if request.chain:
                shared = self.fleet.shared_cache(self.pd)
                if shared is not None:
                    shared.insert(request.chain)
        if not server.up:
            self._retry(request, server.record.name)
            return
        request.expected_at = None
        if not request.decoded_tokens:
            self.record.kv_arrival_s[request.index] = self.events.now_s
        server.admit(request)

    def _on_first_token(self, request: SimRequest, first_token_s: float) -> None:
        if not request.decoded_tokens:
            self.record.first_token_s[request.index] = first_token_s

    def _on_decode_done(self, request: SimRequest) -> None:
        index, now_s = request.index, self.events.now_s
        record = self.record
        record.finish_s[index] = now_s
        record.outcome[index] = _ANSWERED
        if record.first_token_s[index] > now_s:  # its step has got faster meanwhile
            record.first_token_s[index] = now_s
        self.ended += 1

    # Failures.

    def _retry(self, request: SimRequest, failed_node: str) -> None:
        """Give back what the failed attempt had reserved, and begin another."""
        failed = request.decision
        if failed is None:
            raise AssertionError("a request under way has a decision")
        self._give_back(request, failed)
        index = request.index
        if request.decoded_tokens:  # what is decoded is computed again like a prompt
            request.prompt_tokens = self._prompts[index] + request.decoded_tokens
            first_token_s = self.record.first_token_s[index]
            self.record.first_token_s[index] = min(first_token_s, self.events.now_s)
        else:
            self.record.first_token_s[index] = _NAN
        self.record.kv_bytes[index] = 0.0
        request.attempt += 1
        request.avoid |= {failed_node}
        request.decision = None
        self._follow(request, self.policy.place_again(request, self.events.now_s, failed))

    def _give_back(self, request: SimRequest, failed: Decision) -> None:
        self._unwatch(failed.prefill.region, request)
        if failed.move is not None:
            self._unwatch(failed.move.source.region, request)
        if request.reserved_at is not None:
            request.reserved_at.unreserve(request)
            request.reserved_at = None
        if request.expected_at is not None:
            request.expected_at.forget()
            request.expected_at = None
        if request.flow is not None:
            request.flow.link.cancel(request.flow)
            request.flow = None

    def _watch_link(self, region: Region, request: SimRequest) -> None:
        """Note that the request needs the region's link, until `_unwatch`."""
        if region.offloads is not None:
            region.offloads[request.index] = request
            if region.egress is not None and not region.egress.capacity:
                self._set_offload_timer(region, request)

    def _unwatch(self, region_name: str, request: SimRequest) -> None:
        region = self.fleet.regions[region_name]
        if region.offloads is not None:
            region.offloads.pop(request.index, None)

    def _set_offload_timer(self, region: Region, request: SimRequest) -> None:
        self.events.at(
            self.events.now_s + self.deployment.offload_timeout_s,
            self._on_offload_timeout,
            (region, request, request.attempt),
        )

    def _on_offload_timeout(self, argument: tuple[Region, SimRequest, int]) -> None:
        region, request, attempt = argument
        decision = request.decision
        if request.attempt != attempt or decision is None or region.offloads is None:
            return
        if request.index not in region.offloads or region.egress is None or region.egress.capacity:
            return
        if decision.prefill.region != region.name:
            self._give_up_move(region, request)
        else:
            self._retry(request, decision.prefill.name)

    def _give_up_move(self, source: Region, request: SimRequest) -> None:
        """Compute a prompt whole that waited for a prefix from the other end of a dead link."""
        self._unwatch(source.name, request)
        if request.flow is not None:
            request.flow.link.cancel(request.flow)
            request.flow = None
        self._deliver((request, request.attempt))

    # Faults.

    def set_down(self, name: str, down: bool) -> None:
        """Kill a node, or bring it back empty."""
        if not down:
            self.fleet.revive(name)
            return
        for request in self.fleet.kill(name):
            self._retry(request, name)

    def set_slowness(self, name: str, slowness: float) -> None:
        """Let a node take that many times longer."""
        self.fleet.set_slowness(name, slowness)

    def set_link(self, name: str, factor: float) -> None:
        """Let the link of a PrfaaS cluster have that many times its rate."""
        region = self.remotes[name]
        for link in (region.egress, region.ingress):
            if link is not None:
                link.set_capacity(region.link_bytes_per_s * factor)
        if not factor:
            for request in (region.offloads or {}).values():
                self._set_offload_timer(region, request)

    # Time passing.

    def _act(self, _: None) -> None:
        """Let the policy act, and again in a period; while nothing is under way it need not."""
        self.policy.act(self.events.now_s)
        if self.ended < self.arrived:
            self._act_next()
        else:
            self._acts = False

    def _act_next(self) -> None:
        """Let the policy act at the next multiple of its period."""
        self._acts = True
        now_s, period_s = self.events.now_s, self.policy.period_s
        act_s = (now_s // period_s + 1) * period_s
        # Rounding may give the time that it is.
        self.events.at(act_s if act_s > now_s else act_s + period_s, self._act)
