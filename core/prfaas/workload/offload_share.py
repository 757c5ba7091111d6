"""Which prompts are worth offloading at all: those that arrive sooner than the local prefill ends.

Nothing queues here: an offload that is slower even then can only serve to relieve local prefill,
which is the planner's question.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.profile import Curve, InstanceProfile, TableCurve
from prfaas.workload.lengths import Floats, Lengths


@dataclass(frozen=True, slots=True)
class Route:
    """The two places where a prompt can be prefilled, and the link between them.

    An offload takes a round trip besides: half for the request, half for the last byte. Without
    `pipelined` the transfer begins when the prefill ends; with it, layers are sent as they are
    computed, ideally, and only what the prefill does not hide counts. Remotely, a prompt shorter
    than the shortest of the profile's tables counts as long as that one: nothing gets the better
    of what was measured.
    """

    local: InstanceProfile
    remote: InstanceProfile
    link_bytes_per_s: float
    rtt_s: float
    pipelined: bool = False

    def __post_init__(self) -> None:
        if not self.link_bytes_per_s > 0:
            raise ConfigError(f"link_bytes_per_s: {self.link_bytes_per_s}: must be positive")
        if not self.rtt_s >= 0:
            raise ConfigError(f"rtt_s: {self.rtt_s}: must not be negative")

    def local_s(self, tokens: Floats) -> Floats:
        """Return the seconds of a local prefill of so many uncached tokens."""
        return self.local.prefill_s.over(tokens)

    def offload_s(self, tokens: Floats, missing_tokens: Floats) -> Floats:
        """Return the seconds of an offload that computes `tokens` and sends `missing_tokens`."""
        prefill_s = _within(self.remote.prefill_s, tokens)
        transfer_s = _within(self.remote.kv_bytes, missing_tokens) / self.link_bytes_per_s
        if self.pipelined:
            return np.asarray(np.maximum(prefill_s, transfer_s) + self.rtt_s)
        return np.asarray(prefill_s + transfer_s + self.rtt_s)


@dataclass(frozen=True, slots=True)
class OffloadShare:
    """What is faster offloaded: shares of all requests and of all uncached tokens.

    `from_tokens` is the shortest uncached length from which on every longer one seen is faster
    offloaded, None if there is none. `saved_s` is the mean of what the faster ones save.
    """

    requests: float
    tokens: float
    from_tokens: int | None
    saved_s: float


def offload_share(lengths: Lengths, route: Route) -> OffloadShare:
    """Return what is faster offloaded, where a prompt is as long remotely as it is locally.

    So it is without any prefix hits, or where both clusters hold the same prefixes.
    """
    tokens, weights = lengths.cells()
    return _share(tokens, tokens, weights, route)


def offload_share_of_local_hits(
    uncached_tokens: NDArray[np.int64], prompt_tokens: NDArray[np.int64], route: Route
) -> OffloadShare:
    """Return what is faster offloaded, where only the local cluster has prefix hits.

    The remote cluster then computes the whole prompt; what the local one lacks crosses the link.
    """
    if uncached_tokens.shape != prompt_tokens.shape or not len(prompt_tokens):
        raise ConfigError("uncached_tokens, prompt_tokens: must be of one length, not empty")
    weights = np.full(len(prompt_tokens), 1 / len(prompt_tokens))
    return _share(uncached_tokens.astype(float), prompt_tokens.astype(float), weights, route)


def _within(curve: Curve, tokens: Floats) -> Floats:
    """Return the curve's values, of a table not below its first point."""
    begin = curve.points[0][0] if isinstance(curve, TableCurve) else 1.0
    return curve.over(np.maximum(tokens, begin))


def _share(local: Floats, remote: Floats, weights: Floats, route: Route) -> OffloadShare:
    gain_s = route.local_s(local) - route.offload_s(remote, local)
    faster = gain_s > 0
    requests = float(weights[faster].sum())
    all_tokens = float((weights * local).sum())
    return OffloadShare(
        requests=requests,
        tokens=float((weights * local)[faster].sum()) / all_tokens if all_tokens else 0.0,
        from_tokens=_from_tokens(local, faster),
        saved_s=float((weights * gain_s)[faster].sum()) / requests if requests else 0.0,
    )


def _from_tokens(local: Floats, faster: NDArray[np.bool_]) -> int | None:
    longest_slower = float(local[~faster].max(initial=0))
    above = local[faster & (local > longest_slower)]
    return int(np.ceil(above.min())) if len(above) else None
