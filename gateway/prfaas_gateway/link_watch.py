"""Once per period: from what is heard of the links, and seen of the nodes, to what routing goes by.

The same `LinkControl` runs in the simulator, at the same period.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from prfaas.records import NodeRecord, Role
from prfaas.routing import Bandwidth, LinkRule, Pace, mean_pace
from prfaas.routing.region_controls import RegionControls
from prfaas.routing.region_link import RegionLink
from prfaas_coord.companion import Companion
from prfaas_gateway.signal_book import SignalBook

Nodes = Callable[[], Mapping[str, NodeRecord]]

PERIOD_S = 0.5
#: What waits longer for a link than that is prefilled here, as far as the fallback budget goes.
LONGEST_WAIT_S = 30.0
#: After a longer gap between two periods, what was not heard was perhaps only not read.
_LATE_S = 2.0


class LinkWatch:
    """The rules of the links to a gateway's region, and how fast the regions prefill."""

    def __init__(self, book: SignalBook, *, region: str) -> None:
        self._book = book
        self._region = region
        self._controls = RegionControls()
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._last_s: float | None = None
        self.rules: Mapping[str, LinkRule] = {}
        self.tokens_per_s: Mapping[str, float] = {}

    def pace(self, node: str) -> Pace:
        """Return the pace of a node."""
        return self._paces[node]

    def links(self, nodes: Mapping[str, NodeRecord], now_s: float) -> dict[str, RegionLink]:
        """Return the links from other regions' prefill nodes to our decode nodes, by region."""
        return self._book.links(nodes, region=self._region, now_s=now_s)

    def look(self, nodes: Mapping[str, NodeRecord], now_s: float) -> None:
        """Take one period."""
        is_late = self._last_s is not None and now_s - self._last_s > _LATE_S
        self._last_s = now_s
        self._controls.on_links(self.links(nodes, now_s), is_late=is_late)
        # A cache elsewhere counts only where it can be brought here.
        movable = _movable_regions(nodes, self._region)
        self.rules = {
            region: rule if region in movable else scarce(rule)
            for region, rule in self._controls.rules.items()
        }
        for name in [name for name in self._paces if name not in nodes]:
            del self._paces[name]
        self.tokens_per_s = self._speeds(nodes)

    def _speeds(self, nodes: Mapping[str, NodeRecord]) -> dict[str, float]:
        """Return the paces by region; a region not seen at work is taken to be as fast as ours.

        Without our own there is nothing to compare with.
        """
        by_region: defaultdict[str, list[Pace]] = defaultdict(list)
        for node in nodes.values():
            if node.role is Role.PREFILL:
                by_region[node.region].append(self._paces.get(node.name) or Pace())
        own = mean_pace(by_region.get(self._region, []))
        if own is None:
            return {}
        return {region: mean_pace(paces) or own for region, paces in by_region.items()}

    def describe(self, region: str, threshold_tokens: int) -> dict[str, Any]:
        """Return a link's rule as JSON values; the threshold is None while all stays here."""
        rule = self._controls.rules.get(region, LinkRule())
        return {
            "bandwidth": str(rule.bandwidth),
            "threshold_factor": round(rule.threshold_factor, 3),
            "closed": rule.closed,
            "threshold_tokens": None
            if rule.closed
            else round(rule.effective_tokens(threshold_tokens)),
        }


def scarce(rule: LinkRule) -> LinkRule:
    """Return the rule for who must do without caches from elsewhere."""
    return rule._replace(bandwidth=Bandwidth.SCARCE)


def _movable_regions(nodes: Mapping[str, NodeRecord], region: str) -> set[str]:
    """Return the regions that prefixes can be moved from and to: those with pools, as we have."""
    models: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes.values():
        if node.role is Role.PREFILL and node.pool_url:
            models[node.region].add(node.model_id)
    ours = models.pop(region, set())
    return {name for name, theirs in models.items() if theirs & ours}


@asynccontextmanager
async def watching(watch: LinkWatch, nodes: Nodes) -> AsyncIterator[None]:
    """Look once per period while the context lasts."""
    companion = Companion()
    await companion.start(_run(watch, nodes), name="links")
    try:
        yield
    finally:
        await companion.stop(None, None)


async def _run(watch: LinkWatch, nodes: Nodes) -> None:
    while True:
        watch.look(nodes(), asyncio.get_running_loop().time())
        await asyncio.sleep(PERIOD_S)
