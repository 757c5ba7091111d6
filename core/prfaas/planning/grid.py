"""Equation 6 over a grid: every threshold by every division of the PD cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.planning.site import Constraints, Site
from prfaas.throughput import Demand, Split
from prfaas.throughput.equations import (
    local_limit,
    offload_limit,
    theta_pd_d,
    theta_pd_p,
    theta_prfaas,
)
from prfaas.workload.lengths import Lengths

Floats = NDArray[np.float64]

#: N_p and N_d.
Roles = tuple[int, int]

_MAX_THRESHOLDS = 100_000


def threshold_grid(lengths: Lengths, constraints: Constraints) -> Floats:
    """Return the thresholds to compare: 0 (all is offloaded) to the first that offloads nothing."""
    if constraints.threshold_tokens is not None:
        return np.array([constraints.threshold_tokens])
    top = float(lengths.cells()[0][-1])
    while float(lengths.above(np.array(top))) > 0 and top < 1e12:
        top *= 1.01
    step = constraints.threshold_step_tokens
    if top / step > _MAX_THRESHOLDS:
        raise ConfigError(
            f"threshold_step_tokens = {step}: allowed: at least {top / _MAX_THRESHOLDS:.0f}"
            f" for prompts of up to {top:.0f} tokens"
        )
    return np.arange(0, np.ceil(top / step) + 1) * float(step)


@dataclass(frozen=True)
class RateGrid:
    """What a site takes at every threshold of `parts`, by any division; looked up once each.

    Arrays over thresholds are `(num_thresholds,)`, those over roles too `(num_roles,
    num_thresholds)`.
    """

    site: Site
    demand: Demand
    parts: Split

    @cached_property
    def offload_limits(self) -> Floats:
        """Theta_prfaas / p of all PrfaaS clusters.

        Source: PrfaaS equations 3 and 6, summed over clusters.
        """
        total = np.zeros_like(self.parts.offload_fraction)
        for remote in self.site.remotes:
            seconds = self.parts.long_mean(remote.profile.prefill_s.over)
            size = self.parts.long_mean(remote.profile.kv_bytes.over)
            total = total + theta_prfaas(remote.instances, seconds, remote.usable_bytes_per_s, size)
        return offload_limit(total, self.parts.offload_fraction)

    @cached_property
    def _short_s(self) -> Floats:
        return self.parts.short_mean(self.site.pd.profile.prefill_s.over)

    @cached_property
    def _decode_theta(self) -> float:
        """Theta_pd_d of one instance."""
        profile = self.site.pd.profile
        return theta_pd_d(1, profile, self.demand.tpot_s, self.demand.output_tokens)

    def local_limits(self, n_p: Sequence[int]) -> Floats:
        """Return Theta_pd_p / (1 - p) for every N_p.

        Where nothing is local there is no limit, also without instances.

        Source: PrfaaS equations 4 and 6.
        """
        counts = np.array(n_p, dtype=np.float64)[:, np.newaxis]
        return local_limit(theta_pd_p(counts, self._short_s), self.parts.offload_fraction)

    def rates_and_room(self, roles: Sequence[Roles]) -> tuple[Floats, Floats]:
        """Return Lambda_max and the limit of prefill alone."""
        room = np.minimum(self.offload_limits, self.local_limits([n_p for n_p, _ in roles]))
        decode = np.array([[n_d * self._decode_theta] for _, n_d in roles])
        return np.minimum(room, decode), room
