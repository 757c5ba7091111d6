"""Does a link do what it is set to? Measurements beside the spec, with stated tolerances. Pure."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from itertools import product
from typing import Any

from prfaas_netem.jitter import Distribution, spread
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.loss import BurstLoss

EARLY_S = 0.0005
"""A packet is never earlier than set; clocks and a change of delay under way make it look so."""
LATE_S, LATE_SHARE = 0.005, 0.25
"""A machine that wakes up late makes a delay longer: by so much, or by this share of it."""
RATE_TOLERANCE = 0.15
"""TCP's payload is up to 6 % below a rate on the wire; the rest is measuring for a second."""
SHOWABLE_BITS_PER_S = 200e6
"""A machine that cannot fill a faster link says nothing about the link."""
SHARE_SLACK = 0.002
SIGMAS = 4.0
UDP_HEADER_SHARE = 8 / 264
"""Of the bytes behind the IP header of a packet of `stream_probe`."""
_GRID = 100


class Verdict(StrEnum):
    """How a measurement stands to what is set."""

    OK = "ok"
    OFF = "off"
    NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Check:
    """One quantity of a direction: set, measured, the bounds it may lie in, and the verdict.

    Durations in seconds, rates in bit/s, shares from 0 to 1; `measured` is NaN when nothing
    arrived.
    """

    quantity: str
    set: float
    measured: float
    low: float
    high: float
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"verdict": str(self.verdict)}


def check_round_trip(there: LinkSpec, back: LinkSpec, median_s: float) -> Check:
    """Compare the median round trip of handshakes."""
    wanted_s = there.delay_s + back.delay_s
    return _delay("round trip", wanted_s, there.jitter_s + back.jitter_s, median_s)


def check_delay(spec: LinkSpec, median_s: float) -> Check:
    """Compare the median one-way delay of packets far apart."""
    return _delay("delay", spec.delay_s, spec.jitter_s, median_s)


def check_jitter(spec: LinkSpec, middle_half_s: float) -> Check:
    """Compare the width of the middle half of one-way delays of packets far apart."""
    wanted_s = middle_half(spec.jitter_distribution) * spec.jitter_s
    high_s = 1.6 * wanted_s + LATE_S / 2
    return _within("spread", wanted_s, middle_half_s, 0.6 * wanted_s - EARLY_S, high_s)


def check_shares(
    spec: LinkSpec, *, sent: int, lost: float, corrupted: float, duplicated: float, overtook: float
) -> Iterator[Check]:
    """Compare shares of `sent` packets: four standard deviations and 0.2 % either way."""
    model = spec.loss_model
    burstiness = _burstiness(model) if isinstance(model, BurstLoss) else 1.0
    kept = 1 - spec.loss_share
    # Whose UDP header is damaged may not arrive at all.
    unseen = spec.corruption * kept * UDP_HEADER_SHARE
    for quantity, wanted, measured, factor in (
        ("loss", spec.loss_share + unseen, lost, burstiness),
        ("corruption", spec.corruption * kept, corrupted, 1.0),
        ("duplication", spec.duplication * kept, duplicated, 1.0),
        ("reordering", spec.reordering * kept, overtook, 1.0),
    ):
        deviation = math.sqrt(wanted * (1 - wanted) * factor / sent)
        slack = SIGMAS * deviation + SHARE_SLACK
        yield _within(quantity, wanted, measured, wanted - slack, wanted + slack)


def check_rate(spec: LinkSpec, bits_per_s: float, *, carries_tcp_well: bool) -> Check:
    """Compare the rate of one TCP stream.

    More than set is always wrong. Less is wrong only where the machine surely could, and TCP is not
    slowed down by what else the link does.
    """
    wanted = float(spec.rate_bits_per_s)
    low, high = wanted * (1 - RATE_TOLERANCE), wanted * (1 + RATE_TOLERANCE)
    check = _within("rate", wanted, bits_per_s, low, high)
    if bits_per_s < low and (wanted > SHOWABLE_BITS_PER_S or not carries_tcp_well):
        return Check("rate", wanted, bits_per_s, low, high, Verdict.NOT_REACHED)
    return check


def carries_tcp_well(spec: LinkSpec) -> bool:
    """Return whether nothing but rate and delay limits a TCP stream that way.

    A spread delay counts as well: TCP takes sudden waits for a full link.
    """
    return not (
        spec.loss_share or spec.corruption or spec.duplication or spec.reordering or spec.jitter_s
    )


@cache
def middle_half(distribution: Distribution) -> float:
    """Return the width of a distribution's middle half, in units of the jitter.

    >>> round(middle_half(Distribution.UNIFORM), 2), round(middle_half(Distribution.NORMAL), 2)
    (1.0, 1.35)
    """
    grid = [(number + 0.5) / _GRID for number in range(_GRID)]
    pairs = product(grid, repeat=2)  # as many chances as any distribution takes
    values = sorted(spread(distribution, iter(pair).__next__) for pair in pairs)
    return values[3 * len(values) // 4] - values[len(values) // 4]


def _burstiness(model: BurstLoss) -> float:
    """Return by how much bursts widen the variance of a count of lost packets, at most."""
    correlation = max(0.0, 1 - model.enter - model.leave)
    return (1 + correlation) / max(1e-3, 1 - correlation)


def _delay(quantity: str, wanted_s: float, jitter_s: float, median_s: float) -> Check:
    low_s = wanted_s - jitter_s - EARLY_S
    high_s = wanted_s + jitter_s + max(LATE_S, LATE_SHARE * wanted_s)
    return _within(quantity, wanted_s, median_s, low_s, high_s)


def _within(quantity: str, wanted: float, measured: float, low: float, high: float) -> Check:
    low = max(0.0, low)
    verdict = Verdict.OK if low <= measured <= high else Verdict.OFF
    return Check(quantity, wanted, measured, low, high, verdict)
