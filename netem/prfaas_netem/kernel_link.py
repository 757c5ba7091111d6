"""The link shaped by the kernel: `htb` for the rate, `netem` for all else."""

import errno
from collections.abc import Sequence
from typing import Any, cast

from prfaas.errors import PreflightError
from prfaas_netem import rules
from prfaas_netem.jitter import Distribution
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.loss import BurstLoss
from prfaas_netem.packet_queue import PacketQueue
from prfaas_netem.route_socket import index_of, route_socket
from prfaas_netem.topology import Topology
from prfaas_netem.traffic_control import run_tc
from prfaas_netem.ways import Direction

_LOOPBACK = 1
_ROOT, _LEAVES = 0x10000, 0x100000
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


def netem_arguments(spec: LinkSpec) -> list[str]:
    """Return what `tc` is told of a direction but for its rate.

    The limit holds what is on the wire at full rate plus the backlog, in packets of 1,500 bytes.

    >>> netem_arguments(LinkSpec(rate_bits_per_s=10**9, delay_s=0.01, loss=0.02))
    ['netem', 'limit', '2501', 'delay', '10000us', 'loss', 'random', '2%']
    """
    in_flight_bytes = spec.rate_bits_per_s / 8 * (spec.delay_s + spec.jitter_s)
    packets = int((in_flight_bytes + spec.queue_bytes) / _MTU_BYTES) + 1
    arguments = ["netem", "limit", str(min(packets, _MAX_LIMIT_PACKETS))]
    arguments += ["delay", f"{round(spec.delay_s * 1e6)}us"]
    if spec.jitter_s:
        arguments += [f"{round(spec.jitter_s * 1e6)}us"]
        if spec.jitter_distribution is not Distribution.UNIFORM:  # netem's own without a table
            arguments += ["distribution", str(spec.jitter_distribution)]
    arguments += _loss_arguments(spec.loss_model)
    for word, share in (
        ("corrupt", spec.corruption),
        ("duplicate", spec.duplication),
        ("reorder", spec.reordering),
    ):
        if share:
            arguments += [word, _percent(share)]
    return arguments


def htb_options(spec: LinkSpec) -> dict[str, int]:
    """Return pyroute2's htb class arguments: bytes per second, and a burst of 1 ms of the rate."""
    rate_bytes_per_s = spec.rate_bits_per_s // 8
    burst_bytes = max(_MIN_BURST_BYTES, rate_bytes_per_s // 1000)
    return {"rate": rate_bytes_per_s, "burst": burst_bytes, "cburst": burst_bytes}


class KernelLink:
    """The backend `kernel`. The shaping outlives a killed process; `close` takes the link down.

    Each router interface has an htb with one class for every region that packets come from.

    Raises: PreflightError when the kernel refuses.
    """

    name = "kernel"

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        for interface in {direction.out_interface for direction in topology.directions()}:
            _clear(interface)
        for direction in topology.directions():
            self._build(direction, topology.way(direction.source, direction.target).spec)
        rules.set_kernel_path(topology, open_=True)

    def apply(self, direction: Direction, spec: LinkSpec) -> None:
        """Change one direction from now on; packets already delayed keep their old delay."""
        number = self._number(direction)
        with route_socket() as socket:
            index = index_of(socket, direction.out_interface)
            socket.tc(
                "change-class", "htb", index, _ROOT + number, parent=_ROOT, **htb_options(spec)
            )
        self._leaf("change", direction, spec)

    def report(self, direction: Direction) -> dict[str, Any]:
        """Return mode and counters of one direction; netem counts all its drops together."""
        leaf = _LEAVES + (self._number(direction) << 16)
        with route_socket() as socket:
            index = index_of(socket, direction.out_interface)
            counters = {"bytes": 0, "packets": 0, "drops": 0, "qlen": 0}
            for qdisc in socket.get_qdiscs(index=index):
                if qdisc["handle"] == leaf:
                    counters = _counters(qdisc)
        return {
            "mode": "gso",
            "packets": counters["packets"],
            "bytes": counters["bytes"],
            "drops": {"netem": counters["drops"]},
            "harmed": {},
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

        number = self._number(direction)
        try:
            with route_socket() as socket:
                index = index_of(socket, direction.out_interface)
                if not any(qdisc["handle"] == _ROOT for qdisc in socket.get_qdiscs(index=index)):
                    socket.tc("add", "htb", index, _ROOT)
                socket.tc(
                    "add-class", "htb", index, _ROOT + number, parent=_ROOT, **htb_options(spec)
                )
        except NetlinkError as error:
            raise PreflightError(f"the kernel refuses htb: {error}") from error
        self._leaf("add", direction, spec)
        run_tc(
            *("filter", "add", "dev", direction.out_interface, "parent", "1:", "protocol", "ip"),
            *("u32", "match", "ip", "src", self._topology.subnet(direction.source)),
            *("flowid", f"1:{number}"),
        )

    def _leaf(self, verb: str, direction: Direction, spec: LinkSpec) -> None:
        number = self._number(direction)
        place = ("dev", direction.out_interface, "parent", f"1:{number}")
        run_tc("qdisc", verb, *place, "handle", f"{16 + number:x}:", *netem_arguments(spec))

    def _number(self, direction: Direction) -> int:
        return self._topology.regions.index(direction.source) + 1


def _clear(interface: str) -> None:
    from pyroute2 import NetlinkError

    with route_socket() as socket:
        try:
            socket.tc("del", index=index_of(socket, interface), root=True)
        except NetlinkError as error:
            if error.code not in (errno.ENOENT, errno.EINVAL):
                raise


def _loss_arguments(model: float | BurstLoss) -> list[str]:
    if isinstance(model, BurstLoss):
        shares = (model.enter, model.leave, model.loss_bad, model.loss_good)
        return ["loss", "gemodel", *map(_percent, shares)]
    return ["loss", "random", _percent(model)] if model else []


def _percent(share: float) -> str:
    return f"{share * 100:.7f}".rstrip("0").rstrip(".") + "%"


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
