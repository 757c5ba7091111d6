"""Policies that route by the gateway's own `decide`."""

from typing import TYPE_CHECKING

from prfaas.routing import (
    Decision,
    LinkRule,
    Refusal,
    RemoteRegion,
    Snapshot,
    decide,
    decide_retry,
)
from prfaas.sim.request import SimRequest

if TYPE_CHECKING:
    from prfaas.sim.world import Region, World


class ThresholdPolicy:
    """A fixed threshold; links are never looked at."""

    name = "threshold"
    models = "the gateway's routing with a fixed threshold, no congestion control, no re-planning"
    source = "PrfaaS equation 7"
    period_s = 0.0

    def __init__(self, threshold_tokens: int) -> None:
        self.threshold_tokens = threshold_tokens
        self._snapshot: Snapshot[SimRequest] | None = None

    def start(self, world: "World") -> None:
        """Put the world's pools into a snapshot; they are live."""
        self._snapshot = Snapshot(
            region=world.pd.name,
            threshold_tokens=self.threshold_tokens,
            decodes=world.decodes,
            local=world.pd.pool,
            tokens_per_s=_tokens_per_s(world, world.pd),
            remotes=tuple(_remote(world, region) for region in world.remotes.values()),
        )

    def place(self, request: SimRequest, now_s: float) -> Decision | Refusal:
        """Choose the nodes of a request's first attempt."""
        return decide(request, self.snapshot, now_s)

    def place_again(
        self, request: SimRequest, now_s: float, failed: Decision
    ) -> Decision | Refusal:
        """Choose the nodes of another attempt."""
        return decide_retry(request, self.snapshot, now_s, failed=failed, avoid=request.avoid)

    def act(self, now_s: float) -> None:
        """Do nothing."""

    @property
    def snapshot(self) -> Snapshot[SimRequest]:
        """What routing decides from now."""
        if self._snapshot is None:
            raise AssertionError("start comes first")
        return self._snapshot

    def set_threshold(self, threshold_tokens: int) -> None:
        """Offload above another threshold from now on."""
        self.threshold_tokens = threshold_tokens
        self._snapshot = self.snapshot._replace(threshold_tokens=threshold_tokens)

    def set_links(self, rules: dict[str, LinkRule]) -> None:
        """Follow these rules of the links, by region, from now on."""
        remotes = tuple([r._replace(link=rules[r.region]) for r in self.snapshot.remotes])
        self._snapshot = self.snapshot._replace(remotes=remotes)


def _remote(world: "World", region: "Region") -> RemoteRegion[SimRequest]:
    """Return a region as routing compares it: its speeds are those at the mean prompt."""
    mean_tokens = float(world.workload.prompt_tokens.mean())
    kv_bytes = region.profile.kv_bytes.at(mean_tokens)
    return RemoteRegion(
        region.name,
        region.pool,
        tokens_per_s=_tokens_per_s(world, region),
        link_tokens_per_s=mean_tokens * region.link_bytes_per_s / kv_bytes,
    )


def _tokens_per_s(world: "World", region: "Region") -> float:
    mean_tokens = float(world.workload.prompt_tokens.mean())
    return mean_tokens / region.profile.prefill_s.at(mean_tokens)
