"""How full the stages were: instance-seconds from the timeline, bytes from the links themselves."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prfaas.sim.intervals import open_seconds
from prfaas.sim.link import FairLink
from prfaas.sim.record import Columns
from prfaas.sim.scenario import Deployment
from prfaas.sim.timeline import Timeline
from prfaas.throughput import PrefillCluster

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LinkLog:
    """What each link had sent by when: `at_s` never decreases, all arrays have its shape."""

    at_s: Floats
    sent_bytes: Mapping[str, Floats]

    def between(self, name: str, edges_s: Floats) -> Floats:
        """Return the bytes that left by a cluster's link per bin; none where it was not watched.

        >>> LinkLog(np.array([0.0, 4.0]), {"far": np.array([0.0, 8.0])}).between(
        ...     "far", np.array([0.0, 1.0, 4.0])
        ... )
        array([2., 6.])
        """
        if name not in self.sent_bytes:
            return np.zeros(len(edges_s) - 1)
        return np.diff(np.interp(edges_s, self.at_s, self.sent_bytes[name]))


class LinkWatch:
    """Reads links from time to time, without any effect on them."""

    def __init__(self, links: Mapping[str, FairLink]) -> None:
        self._links = links
        self._at_s = [0.0]
        self._sent_bytes = {name: [0.0] for name in links}

    def read(self, now_s: float) -> None:
        """Note what each link has sent by now."""
        self._at_s.append(now_s)
        for name, link in self._links.items():
            self._sent_bytes[name].append(link.sent_by_now())

    def log(self) -> LinkLog:
        """Return what was noted."""
        sent = {name: np.array(values) for name, values in self._sent_bytes.items()}
        return LinkLog(np.array(self._at_s), sent)


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Bytes that left all PrfaaS clusters, moves of cached prefixes among them.

    `share` is of what may be used of the links; `peak_share` is that of the fullest bin.
    """

    bytes_per_s: float
    share: float
    peak_share: float


@dataclass(frozen=True, slots=True)
class StageUse:
    """How full each stage was, of what the deployment began with; 0 where there is none."""

    prfaas_prefill: float
    pd_prefill: float
    pd_decode: float


@dataclass(frozen=True, slots=True)
class ClusterUse:
    """One PrfaaS cluster: requests that were prefilled there, and how full it and its link were."""

    name: str
    instances: int
    offloaded: int
    prefill: float
    link: LinkUse


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run used of a deployment."""

    columns: Columns
    deployment: Deployment
    timeline: Timeline
    links: LinkLog

    def stages(self, edges_s: Floats) -> StageUse:
        """Return how full the stages were in one bin."""
        shares = self.shares(edges_s)
        return StageUse(**{name: float(shares[name][0]) for name in shares if name != "link"})

    def link(self, edges_s: Floats, bins_s: Floats) -> LinkUse:
        """Return how full all links were in one bin, and in the fullest of many."""
        return self._link_use(self.deployment.remotes, edges_s, bins_s)

    def clusters(self, edges_s: Floats, bins_s: Floats, arrived: Mask) -> tuple[ClusterUse, ...]:
        """Return each PrfaaS cluster's part, offloads being those of the requests that arrived."""
        return tuple(
            self._cluster(remote, self.columns.region == index, edges_s, bins_s, arrived)
            for index, remote in enumerate(self.deployment.remotes, start=1)
        )

    def shares(self, edges_s: Floats) -> dict[str, Floats]:
        """Return per bin how full each stage was."""
        deployment = self.deployment
        decode = deployment.pd.profile.decode
        places = decode.batch_within(deployment.tpot_s) if decode else 0
        # By chunked prefill the nodes that prefill also decode.
        decoding = deployment.pd.prefill if deployment.chunk_tokens else deployment.pd.decode
        away = self.columns.region > 0
        most = {
            "prfaas_prefill": float(sum(remote.instances for remote in deployment.remotes)),
            "pd_prefill": float(deployment.pd.prefill),
            "pd_decode": float(decoding * places),
            "link": _most(deployment.remotes),
        }
        busy = {
            "prfaas_prefill": self._prefilling(away, edges_s),
            "pd_prefill": self._prefilling(~away, edges_s),
            "pd_decode": open_seconds(*self.timeline.of("decode"), edges_s),
            "link": self._sent(deployment.remotes, edges_s),
        }
        return {name: _share(busy[name], edges_s, most[name]) for name in busy}

    def _cluster(
        self, remote: PrefillCluster, here: Mask, edges_s: Floats, bins_s: Floats, arrived: Mask
    ) -> ClusterUse:
        busy = self._prefilling(here, edges_s)
        return ClusterUse(
            name=remote.name,
            instances=remote.instances,
            offloaded=int((here & arrived).sum()),
            prefill=float(_share(busy, edges_s, remote.instances)[0]),
            link=self._link_use((remote,), edges_s, bins_s),
        )

    def _prefilling(self, here: Mask, edges_s: Floats) -> Floats:
        """Return the instance-seconds of prefill per bin; requests of one batch count once."""
        begin_s, end_s = (point[here] for point in self.timeline.of("prefill"))
        if self.deployment.batch_tokens and len(begin_s):
            region = self.columns.region[here]
            order = np.lexsort((end_s, begin_s, region))
            keys = np.stack([region[order], begin_s[order], end_s[order]])
            first = np.concatenate([[True], np.any(np.diff(keys) != 0, axis=0)])
            begin_s, end_s = begin_s[order][first], end_s[order][first]
        return open_seconds(begin_s, end_s, edges_s)

    def _sent(self, remotes: tuple[PrefillCluster, ...], edges_s: Floats) -> Floats:
        sent = [self.links.between(remote.name, edges_s) for remote in remotes]
        return np.asarray(sum(sent, start=np.zeros(len(edges_s) - 1)))

    def _link_use(
        self, remotes: tuple[PrefillCluster, ...], edges_s: Floats, bins_s: Floats
    ) -> LinkUse:
        sent, most = self._sent(remotes, edges_s), _most(remotes)
        return LinkUse(
            bytes_per_s=float(sent[0] / (edges_s[1] - edges_s[0])),
            share=float(_share(sent, edges_s, most)[0]),
            peak_share=float(_share(self._sent(remotes, bins_s), bins_s, most).max()),
        )


def _most(remotes: tuple[PrefillCluster, ...]) -> float:
    return math.fsum(remote.usable_bytes_per_s for remote in remotes)


def _share(used: Floats, edges_s: Floats, most: float) -> Floats:
    """Return per bin what was used of what could be, `most` per second."""
    widths_s = np.diff(edges_s)
    return used / (widths_s * most) if most else np.zeros(len(widths_s))
