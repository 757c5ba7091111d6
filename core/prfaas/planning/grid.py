"""Equation 6 over a grid: every threshold by every division of the PD cluster."""

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


def offload_limits(site: Site, parts: Split) -> Floats:
    """Return Theta_prfaas / p of all PrfaaS clusters, `(num_thresholds,)`.

    Source: PrfaaS equations 3 and 6, summed over clusters.
    """
    total = np.zeros_like(parts.offload_fraction)
    for remote in site.remotes:
        seconds = parts.long_mean(remote.profile.prefill_s.over)
        size = parts.long_mean(remote.profile.kv_bytes.over)
        total = total + theta_prfaas(remote.instances, seconds, remote.usable_bytes_per_s, size)
    return offload_limit(total, parts.offload_fraction)


def local_limits(site: Site, parts: Split, n_p: list[int]) -> Floats:
    """Return Theta_pd_p / (1 - p) for every N_p, `(num_roles, num_thresholds)`.

    Where nothing is local there is no limit, also without instances.

    Source: PrfaaS equations 4 and 6.
    """
    short_s = parts.short_mean(site.pd.profile.prefill_s.over)
    counts = np.array(n_p, dtype=np.float64)[:, np.newaxis]
    return local_limit(theta_pd_p(counts, short_s), parts.offload_fraction)


def rates_and_room(
    site: Site, roles: list[Roles], demand: Demand, parts: Split
) -> tuple[Floats, Floats]:
    """Return Lambda_max and the limit of prefill alone, both `(num_roles, num_thresholds)`."""
    local = local_limits(site, parts, [n_p for n_p, _ in roles])
    room = np.minimum(offload_limits(site, parts), local)
    decode = theta_pd_d(1, site.pd.profile, demand.tpot_s, demand.output_tokens)
    return np.minimum(room, np.array([[n_d * decode] for _, n_d in roles])), room
