"""The paper's policy: routing by threshold, short-term and long-term scheduling around it."""

from typing import TYPE_CHECKING

from prfaas.planning import Constraints, Plan, Site
from prfaas.planning.replan import (
    Observation,
    ReplanSettings,
    Running,
    Slo,
    StageSeen,
    replan,
)
from prfaas.records import Role
from prfaas.routing import Decision, LinkControl, LinkSignal, Refusal
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.request import SimRequest
from prfaas.throughput import Demand
from prfaas.workload.sketch import LengthSketch, MeanSketch, RateSketch

if TYPE_CHECKING:
    from prfaas.sim.link import FairLink
    from prfaas.sim.world import Region, World

_SIGNAL_S = 0.5
_REPLAN_S = 60.0
_HALF_LIFE_S = 1800.0
#: Requests to remember before the estimates are believed: lengths have long tails, and with n of
#: them Lambda_max is known to about 1/sqrt(n), which must be less than the gain that is acted on.
_MIN_SEEN = 2000
#: Of every so many requests one is looked at for the estimates.
_SAMPLE = 2


class DualTimescalePolicy(ThresholdPolicy):
    """Threshold routing; the link's signals move it within seconds, re-planning within minutes.

    All three decisions are the gateway's own code: `decide`, `LinkControl` and `replan`.
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
        self._lengths = LengthSketch(half_life_s=_HALF_LIFE_S)
        self._outputs = MeanSketch(half_life_s=_HALF_LIFE_S)
        self._rate = RateSketch(half_life_s=_HALF_LIFE_S, began_s=0.0)
        self._seen = 0
        self._next_replan_s = _REPLAN_S
        self._controls: dict[str, LinkControl] = {}
        self._sent_bytes: dict[str, float] = {}

    def start(self, world: "World") -> None:
        """Put the world's pools into a snapshot, and watch its links."""
        super().start(world)
        self._world = world
        self._controls = {name: LinkControl() for name in world.remotes}
        self._sent_bytes = dict.fromkeys(world.remotes, 0.0)

    @property
    def running(self) -> Running:
        """What is in force: threshold, instances and roles after all revisions."""
        return self._running

    def place(self, request: SimRequest, now_s: float) -> Decision | Refusal:
        """Choose the nodes of a request's first attempt."""
        decision = super().place(request, now_s)
        self._seen += 1
        if not self._seen % _SAMPLE and isinstance(decision, Decision):
            uncached_tokens = request.prompt_tokens - decision.prefix_tokens
            self._lengths.add(uncached_tokens, at_s=now_s)
            self._outputs.add(request.output_tokens, at_s=now_s)
            self._rate.add(at_s=now_s)
        return decision

    def act(self, now_s: float) -> None:
        """Read the links; from time to time plan again."""
        world = self._world
        links = {name: region.egress for name, region in world.remotes.items()}
        rules = {
            name: self._controls[name].on_signal(self._signal(name, link))
            for name, link in links.items()
            if link is not None
        }
        if any(rules[r.region] != r.link for r in self.snapshot.remotes):
            self.set_links(rules)
        if now_s >= self._next_replan_s:
            self._next_replan_s = now_s + _REPLAN_S
            self._replan(now_s)

    def _signal(self, name: str, link: "FairLink") -> LinkSignal:
        sent_bytes = link.bytes_sent()
        passed_bytes, self._sent_bytes[name] = sent_bytes - self._sent_bytes[name], sent_bytes
        if not link.capacity:
            return LinkSignal(0.0, 0.0, up=False)
        return LinkSignal(
            utilisation=passed_bytes / _SIGNAL_S / link.capacity,
            backlog_s=link.backlog_bytes() / link.capacity,
        )

    def _replan(self, now_s: float) -> None:
        lengths, output_tokens = self._lengths.lengths(), self._outputs.mean()
        if self._lengths.weight * _SAMPLE < _MIN_SEEN or lengths is None or output_tokens is None:
            return
        observation = Observation(
            at_s=now_s,
            arrival_rate_per_s=self._rate.per_s(at_s=now_s) * _SAMPLE,
            lengths=lengths,
            output_tokens=output_tokens,
            prfaas=_prefill_seen(list(self._world.remotes.values())),
            prefill=_prefill_seen([self._world.pd]),
            decode=self._decode_seen(),
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

    def _decode_seen(self) -> StageSeen:
        world = self._world
        servers = world.decodes.servers()
        decode = world.pd.profile.decode
        batch = decode.batch_within(world.deployment.tpot_s) if decode else 0
        if not servers or decode is None or not batch:
            return StageSeen()
        slots = len(servers) * batch
        in_flight = sum(server.in_flight for server in servers)
        output_tokens = self._outputs.mean() or 1.0
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
