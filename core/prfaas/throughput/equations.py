"""Equations 2 to 8 as they stand in the paper, over numbers or arrays of them.

Equation 1 is `InstanceProfile.kv_throughput`. All rates are requests per second, all sizes bytes.
A stage that nothing passes does not limit: `lambda_max` divides by a stage's share of the traffic
only where that is not 0.
"""

import numpy as np
from numpy.typing import NDArray

from prfaas.profile import InstanceProfile

Floats = NDArray[np.float64]

#: Shares of traffic below this are rounding errors of a distribution's tails.
NO_TRAFFIC = 1e-12


def egress_bytes_per_s(gpus: int, profile: InstanceProfile, mean_tokens: float) -> float:
    """Return B_out, what a cluster of GPUs sends when it prefills all the time.

    Source: PrfaaS equation 2.
    """
    return gpus / profile.gpus * profile.kv_throughput(mean_tokens)


def theta_prfaas(
    instances: float, long_prefill_s: Floats, usable_bytes_per_s: float, long_kv_bytes: Floats
) -> Floats:
    """Return how many long prompts a PrfaaS cluster prefills and sends.

    >>> float(theta_prfaas(4, np.array(2.0), 1e9, np.array(1e9)))
    1.0

    Source: PrfaaS equation 3.
    """
    return np.minimum(_per(instances, long_prefill_s), _per(usable_bytes_per_s, long_kv_bytes))


def theta_pd_p(prefill: float | Floats, short_prefill_s: Floats) -> Floats:
    """Return how many short prompts the local prefill instances do.

    >>> float(theta_pd_p(3, np.array(2.0)))
    1.5

    Source: PrfaaS equation 4.
    """
    return _per(prefill, short_prefill_s)


def theta_pd_d(
    decode: float, profile: InstanceProfile, tpot_s: float, output_tokens: float
) -> float:
    """Return how many requests the decode instances finish at the largest batch that keeps tpot_s.

    Source: PrfaaS equation 5.
    """
    batch = profile.decode.batch_within(tpot_s) if profile.decode else 0
    if profile.decode is None or batch == 0:
        return 0.0
    return decode * profile.decode.tokens_per_s(batch) / output_tokens


def offload_limit(theta: Floats, offload_fraction: Floats) -> Floats:
    """Return Theta_prfaas / p: the request rate at which PrfaaS clusters are full; see equation 6.

    >>> offload_limit(np.array([1.5, 0.0]), np.array([0.5, 0.0])).tolist()
    [3.0, inf]
    """
    none = offload_fraction <= NO_TRAFFIC
    return np.asarray(np.where(none, np.inf, theta / np.where(none, 1.0, offload_fraction)))


def local_limit(theta: Floats, offload_fraction: Floats) -> Floats:
    """Return Theta_pd_p / (1 - p): the request rate at which local prefill is full."""
    return offload_limit(theta, 1.0 - offload_fraction)


def lambda_max(
    theta_prfaas: Floats, theta_pd_p: Floats, theta_pd_d: float, offload_fraction: Floats
) -> Floats:
    """Return the request rate at which the first stage is full.

    >>> round(float(lambda_max(np.array(1.61), np.array(1.64), 3.91, np.array(0.496))), 2)
    3.25

    Source: PrfaaS equation 6.
    """
    prefill = np.minimum(
        offload_limit(theta_prfaas, offload_fraction), local_limit(theta_pd_p, offload_fraction)
    )
    return np.asarray(np.minimum(prefill, theta_pd_d))


def threshold_imbalance(
    theta_prfaas: Floats, theta_pd_p: Floats, offload_fraction: Floats
) -> Floats:
    """Return Theta_prfaas / p - Theta_pd_p / (1 - p), which is 0 at the best threshold.

    Source: PrfaaS equation 7.
    """
    return offload_limit(theta_prfaas, offload_fraction) - local_limit(theta_pd_p, offload_fraction)


def role_imbalance(theta_prfaas: float, theta_pd_p: float, theta_pd_d: float) -> float:
    """Return (Theta_prfaas + Theta_pd_p) / Theta_pd_d; below 1 prefill limits, above 1 decode does.

    >>> round(role_imbalance(1.61, 1.64, 3.91), 2)
    0.83

    Source: PrfaaS equation 8, §3.4.3.
    """
    return (theta_prfaas + theta_pd_p) / theta_pd_d if theta_pd_d > 0 else float("inf")


def _per(capacity: float | Floats, cost: Floats) -> Floats:
    """Return capacity / cost; what costs nothing has no limit, unless there is no capacity."""
    free = cost <= 0
    unlimited = np.where(np.asarray(capacity) > 0, np.inf, 0.0)
    return np.asarray(np.where(free, unlimited, capacity / np.where(free, 1.0, cost)))
