"""What TCP says about the lanes, turned into what one peer's path can carry and how full it is.

Source: PrfaaS §3.3 (loss and retransmission are seen before queues build up).
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneSample:
    """One reading of a lane's TCP_INFO at `at_s` of a monotonic clock.

    Counted since the lane was opened: `bytes_acked`, `bytes_retrans`, `busy_s` (something was
    unacknowledged or unsent), `rwnd_limited_s` and `sndbuf_limited_s` (of that, waiting for the
    peer's window or for our buffer). As of now: `rtt_s`, `rttvar_s`, `delivery_bytes_per_s`,
    `unsent_bytes` (in the socket), `is_app_limited` (the rate was ours to raise).
    """

    lane: int
    at_s: float
    rtt_s: float
    rttvar_s: float
    bytes_acked: int
    bytes_retrans: int
    delivery_bytes_per_s: float
    busy_s: float
    rwnd_limited_s: float
    sndbuf_limited_s: float
    unsent_bytes: int
    is_app_limited: bool = False
