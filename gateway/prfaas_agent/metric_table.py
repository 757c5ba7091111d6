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

    `source` is the value's place in the engine's counters, dots between keys; those of a peer's
    metrics begin below `peers.<peer>`. What an engine does not say has no series.
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
NODE_INFO = _gauge("node_info", "", "Who the node is; always 1.", "node", "region")

NODE_GAUGES = (
    _gauge("rooms_open", "rooms_open", "Rooms under way."),
    _gauge("chunks_queued", "chunks_queued", "Chunks not yet acknowledged, on a sender."),
)

PEER_GAUGES = (
    _gauge("peer_lanes", "lanes", "Lanes that are up.", "peer"),
    _gauge(
        "background_bytes",
        "background_bytes",
        "Bytes of background rooms sent and not acknowledged.",
        "peer",
    ),
    _gauge("rtt_seconds", "signals.rtt_s", "Round trip of the path to a peer, of late.", "peer"),
    _gauge(
        "min_rtt_seconds", "signals.min_rtt_s", "Least round trip of the last five minutes.", "peer"
    ),
    _gauge(
        "retransmit_ratio",
        "signals.retransmit_share",
        "Share of bytes that TCP sent again.",
        "peer",
    ),
    _gauge(
        "delivery_bytes_per_second",
        "signals.delivery_bytes_per_s",
        "Bytes acknowledged per second, of late.",
        "peer",
    ),
    _gauge(
        "available_bytes_per_second",
        "signals.available_bytes_per_s",
        "What the path carries for us when asked to; 0 while unknown.",
        "peer",
    ),
    _gauge("utilisation_ratio", "signals.utilisation", "Delivery over what is available.", "peer"),
    _gauge("backlog_bytes", "signals.backlog_bytes", "Bytes ready and not acknowledged.", "peer"),
    _gauge(
        "backlog_seconds", "signals.backlog_s", "How long the backlog takes at this rate.", "peer"
    ),
    _gauge(
        "busy_ratio", "signals.busy_share", "Share of the lanes' time with bytes under way.", "peer"
    ),
    _gauge(
        "receive_window_limited_ratio",
        "signals.rwnd_limited_share",
        "Share of the lanes' time that the peer's receive window was the limit.",
        "peer",
    ),
    _gauge(
        "send_buffer_limited_ratio",
        "signals.sndbuf_limited_share",
        "Share of the lanes' time that our send buffer was the limit.",
        "peer",
    ),
    _gauge(
        "path_up",
        "signals.is_up",
        "0 where bytes wait and none is acknowledged, or no lane is up.",
        "peer",
    ),
    _gauge(
        "compression_on",
        "compression.is_on",
        "1 while chunks to the peer are compressed.",
        "peer",
    ),
    _gauge(
        "compression_ratio",
        "compression.ratio",
        "Plain bytes over encoded ones, of late.",
        "peer",
    ),
)
CONGESTION = _gauge(
    "congestion",
    "signals.congestion",
    "1 for the state that the path's queues are in (none, building, congested), else 0.",
    "peer",
    "state",
)

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
    _counter("chunks_encoded", "chunks_encoded_total", "Chunks sent compressed."),
    _counter(
        "chunks_left_plain",
        "chunks_left_plain_total",
        "Chunks that were to be compressed and did not shrink.",
    ),
    _counter("chunks_decoded", "chunks_decoded_total", "Compressed chunks received."),
    _counter(
        "encoding_saved_bytes", "encoding_saved_bytes_total", "Bytes that stayed off the link."
    ),
    _counter("encode_cpu_seconds", "encode_cpu_s_total", "CPU time spent on compressing."),
    _counter("decode_cpu_seconds", "decode_cpu_s_total", "CPU time spent on decompressing."),
    _counter("pipelined_chunks", "pipelining.chunks_total", "Prefill chunks sent layer by layer."),
    _counter(
        "pipelined_layers_early",
        "pipelining.layers_early_total",
        "Layers submitted while their forward pass ran.",
    ),
    _counter(
        "pipelined_layers_late",
        "pipelining.layers_late_total",
        "Layers submitted after their forward pass.",
    ),
    _counter(
        "pipelined_chunks_acked_early",
        "pipelining.chunks_acked_early_total",
        "Transfer chunks acknowledged while the forward pass ran.",
    ),
    _counter(
        "pipelining_plan_seconds",
        "pipelining.plan_s_total",
        "The scheduler's time spent on index arrays for pipelining.",
    ),
    _counter("tls_handshakes", "security.handshakes_total", "TLS handshakes of lanes."),
)

#: Rooms that ended; `reason` is empty if all items arrived. Of the first sources, one is there.
ROOMS = _counter("rooms", "", "Rooms that ended, and why they failed.", "outcome", "reason")
DONE_SOURCES = ("rooms_sent_total", "rooms_received_total")
FAILED_SOURCE = "rooms_failed_total"

#: A count per reason.
REASON_COUNTERS = (
    _counter("rooms_refused", "rooms_refused_total", "Rooms refused to a peer.", "reason"),
    _counter("lanes_refused", "lanes_refused_total", "Lanes refused to a peer.", "reason"),
    _counter(
        "tls_lanes_refused",
        "security.lanes_refused_total",
        "Lanes ended by TLS, and why.",
        "reason",
    ),
    _counter(
        "pipelining_fallbacks",
        "pipelining.fallbacks_total",
        "Requests, or layers of them, sent chunk by chunk though pipelining is on.",
        "reason",
    ),
)

ROOM_HISTOGRAMS = (
    _histogram(
        "room_seconds",
        "histograms.room_s",
        "From the opening of a room to its end.",
        "outcome",
        "priority",
    ),
    _histogram(
        "first_byte_seconds",
        "histograms.first_byte_s",
        "From the opening of a room to its first chunk on a lane (sender) or come in (receiver).",
        "outcome",
        "priority",
    ),
    _histogram(
        "room_bytes", "histograms.room_bytes", "Bytes granted to a room.", "outcome", "priority"
    ),
)

NODE_HISTOGRAMS = (
    _histogram(
        "pipelining_hook_seconds",
        "pipelining.hook_s",
        "The scheduler's time in one layer's event.",
    ),
)

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
    CONGESTION,
    *COUNTERS,
    ROOMS,
    *REASON_COUNTERS,
    *ROOM_HISTOGRAMS,
    *NODE_HISTOGRAMS,
    CHUNK_ACK,
)
