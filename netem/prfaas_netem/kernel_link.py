"""The link shaped by the kernel: `htb` for the rate, `netem` for delay, jitter and loss."""

import errno
from collections.abc import Sequence
from typing import Any, cast

from prfaas.errors import PreflightError
from prfaas_netem import rules
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.packet_queue import PacketQueue
from prfaas_netem.route_socket import index_of, route_socket
from prfaas_netem.topology import Direction, Topology

_LOOPBACK = 1
_ROOT, _CLASS, _LEAF = 0x10000, 0x10001, 0x100000
_LEAF_KIND = "netem"
_MTU_BYTES = 1500
_MIN_BURST_BYTES = 64 * 1024
_MAX_LIMIT_PACKETS = 1_000_000


def probe_netem() -> bool:
    """Return whether the kernel takes a netem; tried on `lo` of the calling thread's namespace."""
    from pyroute2 import NetlinkError

    try:
        with route_socket() as socket:
            socket.tc("add", "netem", _LOOPBACK, _ROOT, delay=1000)
            # 100 Gbit/s needs htb, too: netem's own rate ends at 34.
            socket.tc("del", "netem", _LOOPBACK, _ROOT)
            socket.tc("add", "htb", _LOOPBACK, _ROOT, default=1)
    except NetlinkError:
        return False
    return True


def netem_options(spec: LinkSpec) -> dict[str, int | float]:
    """Return pyroute2's netem arguments: whole microseconds, percent, packets.

    The limit holds what is on the wire at full rate plus the backlog, in packets of 1,500 bytes.

    >>> netem_options(LinkSpec(delay_s=0.01, loss=0.02))["delay"]
    10000
    """
    in_flight_bytes = spec.rate_bits_per_s / 8 * (spec.delay_s + spec.jitter_s)
    packets = int((in_flight_bytes + spec.queue_bytes) / _MTU_BYTES) + 1
    return {
        "delay": round(spec.delay_s * 1e6),
        "jitter": round(spec.jitter_s * 1e6),
        "loss": spec.loss * 100,
        "limit": min(packets, _MAX_LIMIT_PACKETS),
    }


def htb_options(spec: LinkSpec) -> dict[str, int]:
    """Return pyroute2's htb class arguments: bytes per second, and a burst of 1 ms of the rate."""
    rate_bytes_per_s = spec.rate_bits_per_s // 8
    burst_bytes = max(_MIN_BURST_BYTES, rate_bytes_per_s // 1000)
    return {"rate": rate_bytes_per_s, "burst": burst_bytes, "cburst": burst_bytes}


class KernelLink:
    """The backend `kernel`. The shaping outlives a killed process; `close` takes the link down.

    Raises: PreflightError when the kernel refuses.
    """

    name = "kernel"

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        for direction in topology.directions():
            self._build(direction, topology.link)
        rules.set_kernel_path(topology, open_=True)

    def apply(self, direction: Direction, spec: LinkSpec) -> None:
        """Change one direction from now on; packets already delayed keep their old delay."""
        with route_socket() as socket:
            index = index_of(socket, direction.out_interface)
            socket.tc("change-class", "htb", index, _CLASS, parent=_ROOT, **htb_options(spec))
            socket.tc("change", _LEAF_KIND, index, _LEAF, parent=_CLASS, **netem_options(spec))

    def report(self, direction: Direction) -> dict[str, Any]:
        """Return mode and counters of one direction; netem counts all its drops together."""
        with route_socket() as socket:
            index = index_of(socket, direction.out_interface)
            counters = {"bytes": 0, "packets": 0, "drops": 0, "qlen": 0}
            for qdisc in socket.get_qdiscs(index=index):
                if qdisc["handle"] == _LEAF:
                    counters = _counters(qdisc)
        return {
            "mode": "gso",
            "packets": counters["packets"],
            "bytes": counters["bytes"],
            "drops": {"netem": counters["drops"]},
            "held_packets": counters["qlen"],
            "netlink_errors": 0,
        }

    def queues(self) -> Sequence[PacketQueue]:
        """Return nothing: the kernel does the work."""
        return ()

    def serve(self, ready: Sequence[PacketQueue]) -> float | None:  # noqa: ARG002
        """Do nothing; nothing is ever due."""
        return None

    def close(self) -> None:
        """Take the link down; the queue rules then drop what comes."""
        rules.set_kernel_path(self._topology, open_=False)

    def _build(self, direction: Direction, spec: LinkSpec) -> None:
        from pyroute2 import NetlinkError

        try:
            with route_socket() as socket:
                index = index_of(socket, direction.out_interface)
                _clear(socket, index)
                socket.tc("add", "htb", index, _ROOT, default=1)
                socket.tc("add-class", "htb", index, _CLASS, parent=_ROOT, **htb_options(spec))
                socket.tc("add", _LEAF_KIND, index, _LEAF, parent=_CLASS, **netem_options(spec))
        except NetlinkError as error:
            raise PreflightError(f"the kernel refuses htb or netem: {error}") from error


def _clear(socket: Any, index: int | None) -> None:
    from pyroute2 import NetlinkError

    try:
        socket.tc("del", index=index, root=True)
    except NetlinkError as error:
        if error.code not in (errno.ENOENT, errno.EINVAL):
            raise


def _counters(qdisc: Any) -> dict[str, int]:
    statistics = qdisc.get_attr("TCA_STATS2")
    basic = statistics.get_attr("TCA_STATS_BASIC")
    queue = statistics.get_attr("TCA_STATS_QUEUE")
    return cast(
        dict[str, int],
        {
            **{key: basic[key] for key in ("bytes", "packets")},
            **{key: queue[key] for key in ("drops", "qlen")},
        },
    )
