"""The paper's policy: routing by threshold, short-term and long-term scheduling around it."""

from typing import TYPE_CHECKING

from prfaas.planning import Constraints, Plan, Site
from prfaas.planning.demand_book import MIN_REQUESTS, DemandBook
from prfaas.planning.replan import (
    Observation,
    ReplanSettings,
    Running,
    Slo,
    StageSeen,
    replan,
)
from prfaas.records import Role
from prfaas.routing import Decision, LinkControl, LinkRule, LinkSignal, Refusal, decide
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.request import SimRequest
from prfaas.throughput import Demand

if TYPE_CHECKING:
    from prfaas.sim.link import FairLink
    from prfaas.sim.world import Region, World

_SIGNAL_S = 0.5
_REPLAN_S = 60.0


class DualTimescalePolicy(ThresholdPolicy):
    """Threshold routing; the link's signals move it within seconds, re-planning within minutes.

    All that decides is the gateway's own code: `decide`, `LinkControl`, `DemandBook` and `replan`.
    """

    name = "prfaas"
    models = "PrfaaS: threshold routing with congestion control and re-planning of t and N_p/N_d"
    source = "PrfaaS §3.4"
    period_s = _SIGNAL_S

    def __init__(self, found: Plan, site: Site, demand: Demand, constraints: Constraints) -> None:
        super().__init__(found.threshold_tokens)
        self.revisions = 0
        self._site = site
        self._slo = Slo(demand.tpot_s, constraints.ttft)
        self._settings = ReplanSettings(min_decode=max(constraints.min_decode, 1))
        self._running = Running(
            threshold_tokens=found.threshold_tokens,
            n_prfaas=found.n_prfaas,
            n_p=found.n_p,
            n_d=found.n_d,
            changed_at_s=0.0,
            version=1,
        )
        self._demand = DemandBook(began_s=0.0)
        self._next_replan_s = _REPLAN_S
        self._links: dict[str, FairLink] = {}
        self._controls: dict[str, LinkControl] = {}
        self._rules: dict[str, LinkRule] = {}
        self._sent_bytes: dict[str, float] = {}

    def start(self, world: "World") -> None:
        """Put the world's pools into a snapshot, and watch its links."""
        super().start(world)
        self._world = world
        remotes = world.remotes.items()
        self._links = {name: remote.egress for name, remote in remotes if remote.egress is not None}
        self._controls = {name: LinkControl() for name in self._links}
        self._rules = {remote.region: remote.link for remote in self.snapshot.remotes}
        self._sent_bytes = dict.fromkeys(self._links, 0.0)

    @property
    def running(self) -> Running:
        """What is in force: threshold, instances and roles after all revisions."""
        return self._running

    def place(self, request: SimRequest, now_s: float) -> Decision | Refusal:
        """Choose the nodes of a request's first attempt."""
        decision = decide(request, self.snapshot, now_s)
        if isinstance(decision, Decision):
            uncached_tokens = request.prompt_tokens - decision.prefix_tokens
            self._demand.note_request(uncached_tokens, at_s=now_s)
            self._demand.note_output(request.output_tokens, at_s=now_s)
        return decision

    def act(self, now_s: float) -> None:
        """Read the links; from time to time plan again."""
        is_changed = False
        for name, link in self._links.items():
            rule = self._controls[name].on_signal(self._signal(name, link))
            if rule != self._rules[name]:
                self._rules[name], is_changed = rule, True
        if is_changed:
            self.set_links(self._rules)
        if now_s >= self._next_replan_s:
            self._next_replan_s = now_s + _REPLAN_S
            self._replan(now_s)

    def _signal(self, name: str, link: "FairLink") -> LinkSignal:
        sent_bytes, backlog_bytes = link.reading()
        passed_bytes, self._sent_bytes[name] = sent_bytes - self._sent_bytes[name], sent_bytes
        capacity = link.capacity
        if not capacity:
            return LinkSignal(0.0, 0.0, up=False)
        return LinkSignal(passed_bytes / _SIGNAL_S / capacity, backlog_bytes / capacity)

    def _replan(self, now_s: float) -> None:
        seen = self._demand.seen(at_s=now_s)
        if seen is None or seen.requests < MIN_REQUESTS:
            return
        observation = Observation(
            at_s=now_s,
            arrival_rate_per_s=seen.rate_per_s,
            lengths=seen.lengths,
            output_tokens=seen.output_tokens,
            prfaas=_prefill_seen(list(self._world.remotes.values())),
            prefill=_prefill_seen([self._world.pd]),
            decode=self._decode_seen(seen.output_tokens),
        )
        revision = replan(self._running, observation, self._site, self._slo, self._settings)
        if revision is None:
            return
        self.revisions += 1
        self._convert(revision.n_p - self._running.n_p)
        self._running = revision.applied_to(self._running, at_s=now_s)
        self.set_threshold(revision.threshold_tokens)

    def _convert(self, more_prefill: int) -> None:
        """Give the least loaded nodes of one role the other."""
        world = self._world
        pool = world.decodes if more_prefill > 0 else world.pd.pool
        role = Role.PREFILL if more_prefill > 0 else Role.DECODE
        by_load = sorted(
            pool.servers(), key=lambda s: (s.backlog_tokens, s.in_flight, s.record.name)
        )
        for server in by_load[: min(abs(more_prefill), len(by_load) - 1)]:
            world.convert(server.record.name, role)

    def _decode_seen(self, output_tokens: float) -> StageSeen:
        world = self._world
        servers = world.decodes.servers()
        decode = world.pd.profile.decode
        batch = decode.batch_within(world.deployment.tpot_s) if decode else 0
        if not servers or decode is None or not batch:
            return StageSeen()
        slots = len(servers) * batch
        in_flight = sum(server.in_flight for server in servers)
        waiting_s = max(in_flight - slots, 0) * output_tokens / decode.tokens_per_s(batch)
        return StageSeen(waiting_s / len(servers), min(in_flight / slots, 1.0))


def _prefill_seen(regions: "list[Region]") -> StageSeen:
    servers = [(server, region) for region in regions for server in region.pool.servers()]
    if not servers:
        return StageSeen()
    queue_s = sum(
        region.profile.prefill_s.at(server.backlog_tokens)
        for server, region in servers
        if server.in_flight
    )
    busy = sum(server.in_flight > 0 for server, _ in servers)
    return StageSeen(queue_s / len(servers), busy / len(servers))
