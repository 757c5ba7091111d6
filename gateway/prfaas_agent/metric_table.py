"""Every metric of a node's transfers: its name, its meaning, and where its value comes from.

docs/metrics.md has the same list; a test compares them.
"""

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "prfaas_transfer_"


class Kind(StrEnum):
    """Of a metric, as Prometheus names it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` is without the prefix, and a counter's without `_total`.

    `source` is the key of the value in the engine's counters; of which part of them says the table.
    """

    kind: Kind
    name: str
    help: str
    source: str = ""
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name of its series (of a histogram: before `_bucket`, `_sum`, `_count`)."""
        return PREFIX + self.name + ("_total" if self.kind is Kind.COUNTER else "")


def _gauge(name: str, source: str, text: str, *labels: str) -> Metric:
    return Metric(Kind.GAUGE, name, text, source, labels)


def _counter(name: str, source: str, text: str, *labels: str) -> Metric:
    return Metric(Kind.COUNTER, name, text, source, labels)


def _histogram(name: str, source: str, text: str, *labels: str) -> Metric:
    return Metric(Kind.HISTOGRAM, name, text, source, labels)


ENGINE_UP = _gauge("engine_up", "", "1 while the engine tells its counters, else 0.")
AGE = _gauge(
    "counters_age_seconds", "", "How old the counters are; absent until there have been any."
)
NODE_INFO = _gauge("node_info", "", "Who the node is; always 1.", "node", "role", "region")

#: From the counters themselves.
NODE_GAUGES = (
    _gauge("rooms_open", "rooms_open", "Rooms under way."),
    _gauge("chunks_queued", "chunks_queued", "Chunks not yet acknowledged, on a sender."),
)

#: From `peers.<peer>`.
PEER_GAUGES = (
    _gauge("peer_lanes", "lanes", "Lanes that are up.", "peer"),
    _gauge(
        "background_bytes",
        "background_bytes",
        "Bytes of background rooms sent and not acknowledged.",
        "peer",
    ),
)

#: From `peers.<peer>.signals`, which only a sender has.
SIGNAL_GAUGES = (
    _gauge("rtt_seconds", "rtt_s", "Round trip of the path to a peer, of late.", "peer"),
    _gauge("min_rtt_seconds", "min_rtt_s", "Least round trip of the last five minutes.", "peer"),
    _gauge("retransmit_ratio", "retransmit_share", "Share of bytes that TCP sent again.", "peer"),
    _gauge(
        "delivery_bytes_per_second",
        "delivery_bytes_per_s",
        "Bytes acknowledged per second, of late.",
        "peer",
    ),
    _gauge(
        "available_bytes_per_second",
        "available_bytes_per_s",
        "What the path carries for us when asked to; 0 while unknown.",
        "peer",
    ),
    _gauge("utilisation_ratio", "utilisation", "Delivery over what is available.", "peer"),
    _gauge("backlog_bytes", "backlog_bytes", "Bytes ready and not acknowledged.", "peer"),
    _gauge("backlog_seconds", "backlog_s", "How long the backlog takes at this rate.", "peer"),
    _gauge("busy_ratio", "busy_share", "Share of the lanes' time with bytes under way.", "peer"),
    _gauge(
        "receive_window_limited_ratio",
        "rwnd_limited_share",
        "Share of the lanes' time that the peer's receive window was the limit.",
        "peer",
    ),
    _gauge(
        "send_buffer_limited_ratio",
        "sndbuf_limited_share",
        "Share of the lanes' time that our send buffer was the limit.",
        "peer",
    ),
    _gauge(
        "path_up", "is_up", "0 where bytes wait and none is acknowledged, or no lane is up.", "peer"
    ),
)
CONGESTION = _gauge(
    "congestion",
    "congestion",
    "1 for the state that the path's queues are in (none, building, congested), else 0.",
    "peer",
    "state",
)

#: From the counters themselves.
COUNTERS = (
    _counter("rooms_opened", "rooms_opened_total", "Rooms opened."),
    _counter("chunks_sent", "chunks_sent_total", "Chunks given to a lane, again or not."),
    _counter("chunks_acked", "chunks_acked_total", "Chunks acknowledged."),
    _counter("chunks_resent", "chunks_resent_total", "Chunks that a dead lane lost."),
    _counter("payload_sent_bytes", "payload_bytes_sent_total", "Payload given to a lane."),
    _counter("chunks_received", "chunks_received_total", "Chunks put in place."),
    _counter("chunks_discarded", "chunks_discarded_total", "Chunks of rooms that had ended."),
    _counter("chunks_damaged", "chunks_damaged_total", "Chunks whose digest did not fit."),
    _counter("payload_received_bytes", "payload_bytes_received_total", "Payload put in place."),
    _counter("lanes_lost", "lanes_lost_total", "Lanes that ended or were never up."),
)

#: Rooms that ended; `reason` is empty if all items arrived. Of the first sources, one is there.
ROOMS = _counter("rooms", "", "Rooms that ended, and why they failed.", "outcome", "reason")
DONE_SOURCES = ("rooms_sent_total", "rooms_received_total")
FAILED_SOURCE = "rooms_failed_total"

#: From the counters themselves: a count per reason.
REASON_COUNTERS = (
    _counter("rooms_refused", "rooms_refused_total", "Rooms refused to a peer.", "reason"),
    _counter("lanes_refused", "lanes_refused_total", "Lanes refused to a peer.", "reason"),
)

#: From `histograms`.
ROOM_HISTOGRAMS = (
    _histogram(
        "room_seconds",
        "room_s",
        "From the opening of a room to its end.",
        "outcome",
        "priority",
    ),
    _histogram(
        "first_byte_seconds",
        "first_byte_s",
        "From the opening of a room to its first chunk on a lane (sender) or come in (receiver).",
        "outcome",
        "priority",
    ),
    _histogram("room_bytes", "room_bytes", "Bytes granted to a room.", "outcome", "priority"),
)

#: From `peers.<peer>`, which only a sender has.
CHUNK_ACK = _histogram(
    "chunk_ack_seconds",
    "ack_s",
    "From a chunk's place in a lane's queue to its acknowledgement; one at a time per lane.",
    "peer",
)

ALL = (
    ENGINE_UP,
    AGE,
    NODE_INFO,
    *NODE_GAUGES,
    *PEER_GAUGES,
    *SIGNAL_GAUGES,
    CONGESTION,
    *COUNTERS,
    ROOMS,
    *REASON_COUNTERS,
    *ROOM_HISTOGRAMS,
    CHUNK_ACK,
)
