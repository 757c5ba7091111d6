"""Measure one direction of a running link and compare it with what it is set to."""

from dataclasses import dataclass
from typing import Any

from prfaas.errors import StateError
from prfaas_netem import link_check
from prfaas_netem.link_check import Check, Verdict
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.probes import measure_rate, measure_rtt
from prfaas_netem.stream_probe import PACKET_BYTES, measure_stream
from prfaas_netem.topology import Topology

_HANDSHAKES = 9
_SPARSE_PACKETS, _SPARSE_LIMIT_S = 150, 2.0
_DENSE_PACKETS, _DENSE_INTERVAL_S, _DENSE_LIMIT_S = 4000, 0.00025, 3.0
_DENSE_SHARE_OF_RATE = 0.25
_BURST_S, _BURST_ROUND_TRIPS, _BURST_LIMIT_S = 0.5, 40, 6.0
_WIRE_BITS = (PACKET_BYTES + 42) * 8


@dataclass(frozen=True)
class WayProbe:
    """The checks of one direction."""

    source: str
    target: str
    checks: tuple[Check, ...]
    loss_run: float

    @property
    def is_as_set(self) -> bool:
        """Whether nothing measured contradicts what is set."""
        return all(check.verdict is not Verdict.OFF for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "from": self.source,
            "to": self.target,
            "as_set": self.is_as_set,
            "loss_run_packets": self.loss_run,
            "checks": [check.to_json() for check in self.checks],
        }


def probe_way(topology: Topology, *, source: str, target: str) -> WayProbe:
    """Measure a direction whose `topology` says what it is set to now. Takes 3 to 15 seconds.

    Three kinds of traffic: handshakes and packets far apart for delays, packets close together for
    what becomes of them, one TCP stream for the rate.

    Raises: StateError when the regions are not there or nothing passes.
    """
    there = topology.way(source, target).spec
    back = topology.way(target, source).spec
    rtt = measure_rtt(topology, source=source, target=target, count=_HANDSHAKES)
    checks = [link_check.check_round_trip(there, back, rtt.median_s)]
    interval_s = 2 * 4 * there.jitter_s + 0.002
    sparse_count = min(_SPARSE_PACKETS, max(20, int(_SPARSE_LIMIT_S / interval_s)))
    sparse = measure_stream(
        topology, source=source, target=target, count=sparse_count, interval_s=interval_s
    )
    checks.append(link_check.check_delay(there, sparse.delay_median_s))
    checks.append(link_check.check_jitter(there, sparse.spread_s))
    interval_s = max(_DENSE_INTERVAL_S, _WIRE_BITS / (_DENSE_SHARE_OF_RATE * there.rate_bits_per_s))
    dense = measure_stream(
        topology,
        source=source,
        target=target,
        count=min(_DENSE_PACKETS, max(20, int(_DENSE_LIMIT_S / interval_s))),
        interval_s=interval_s,
    )
    checks += link_check.check_shares(
        there,
        sent=dense.sent,
        lost=dense.share(dense.lost),
        corrupted=dense.share(dense.corrupted),
        duplicated=dense.share(dense.duplicated),
        overtook=dense.share(dense.overtook),
    )
    checks.append(_rate(topology, there, back, source=source, target=target))
    return WayProbe(source, target, tuple(checks), dense.loss_run)


def _rate(
    topology: Topology, there: LinkSpec, back: LinkSpec, *, source: str, target: str
) -> Check:
    round_trip_s = there.delay_s + back.delay_s
    seconds = min(max(_BURST_S, _BURST_ROUND_TRIPS * round_trip_s), _BURST_LIMIT_S)
    well = link_check.carries_tcp_well(there) and link_check.carries_tcp_well(back)
    try:
        measured = measure_rate(topology, source=source, target=target, seconds=seconds)
    except StateError:
        if well:
            raise
        return link_check.check_rate(there, 0.0, carries_tcp_well=False)
    return link_check.check_rate(there, measured.bits_per_s, carries_tcp_well=well)
