"""Bare TTFT: prefill alone, or with the transfer after it; no queue, no first decode step.

An offloaded prompt counts as on the slowest of the PrfaaS clusters, and its transfer as begun when
the prefill ends: layer-wise pipelining only makes it better.

Source: PrfaaS Table 6 prints prefill alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prfaas.profile import InstanceProfile
from prfaas.throughput.clusters import Expectation, PrefillCluster
from prfaas.throughput.split import Cost, Split, split_at
from prfaas.workload.lengths import Lengths

Floats = NDArray[np.float64]

#: A link of less than a byte per second is none.
_NO_LINK = 1.0


@dataclass(frozen=True, slots=True)
class Ttft:
    """Bare TTFT of all requests in seconds, without and with the transfer of offloaded prompts."""

    prefill_mean_s: float
    prefill_p90_s: float
    arrival_mean_s: float
    arrival_p90_s: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """Seconds to the KV cache being where it decodes, over the prompt's length."""

    local: Cost
    remote: Cost

    def mean_s(self, lengths: Lengths, thresholds: Floats) -> Floats:
        """Return the mean for every threshold."""
        return self._mixed(
            split_at(lengths, thresholds, Expectation.EXACT), self.local, self.remote
        )

    def share_within(self, lengths: Lengths, thresholds: Floats, seconds: float) -> Floats:
        """Return for every threshold the share of requests that take at most these seconds."""

        def local(tokens: Floats) -> Floats:
            return np.asarray(self.local(tokens) <= seconds, dtype=np.float64)

        def remote(tokens: Floats) -> Floats:
            return np.asarray(self.remote(tokens) <= seconds, dtype=np.float64)

        return self._mixed(split_at(lengths, thresholds, Expectation.EXACT), local, remote)

    def quantile_s(self, lengths: Lengths, threshold: float, q: float) -> float:
        """Return the seconds that a share q of the requests does not exceed."""
        tokens, weights = lengths.cells()
        seconds = np.where(tokens > threshold, self.remote(tokens), self.local(tokens))
        order = np.argsort(seconds)
        index = int(np.searchsorted(np.cumsum(weights[order]), q * (1 - 1e-12)))
        return float(seconds[order][min(index, len(order) - 1)])

    @staticmethod
    def _mixed(split: Split, local: Cost, remote: Cost) -> Floats:
        offloaded = split.offload_fraction
        return offloaded * split.long_mean(remote) + (1 - offloaded) * split.short_mean(local)


def arrival_of(
    remotes: Sequence[PrefillCluster], local: InstanceProfile, *, transfer: bool
) -> Arrival:
    """Return the arrival of a deployment; a PrfaaS cluster that takes nothing does not count."""
    active = [
        remote for remote in remotes if remote.instances and remote.usable_bytes_per_s >= _NO_LINK
    ]

    def remote_s(tokens: Floats) -> Floats:
        slowest = np.zeros(np.shape(tokens))
        for remote in active:
            slowest = np.maximum(slowest, _seconds(remote, tokens, transfer=transfer))
        return slowest

    return Arrival(local.prefill_s.over, remote_s)


def ttft_of(
    remotes: Sequence[PrefillCluster], local: InstanceProfile, lengths: Lengths, threshold: float
) -> Ttft:
    """Return the bare TTFT of a deployment at a threshold."""
    at = np.array([threshold])
    prefill = arrival_of(remotes, local, transfer=False)
    arrival = arrival_of(remotes, local, transfer=True)
    return Ttft(
        prefill_mean_s=float(prefill.mean_s(lengths, at)[0]),
        prefill_p90_s=prefill.quantile_s(lengths, threshold, 0.9),
        arrival_mean_s=float(arrival.mean_s(lengths, at)[0]),
        arrival_p90_s=arrival.quantile_s(lengths, threshold, 0.9),
    )


def _seconds(remote: PrefillCluster, tokens: Floats, *, transfer: bool) -> Floats:
    seconds = remote.profile.prefill_s.over(tokens)
    if not transfer:
        return seconds
    return np.asarray(seconds + remote.profile.kv_bytes.over(tokens) / remote.usable_bytes_per_s)
