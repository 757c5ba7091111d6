"""The link as a user-space process: it delays the verdicts on packets that wait in the kernel."""

import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from prfaas_netem import rules
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.packet_queue import PacketQueue
from prfaas_netem.shaper import Shaper
from prfaas_netem.topology import Direction, Topology


class QueuedDirection:
    """One direction: its queue, its shaper, and the packets it holds, oldest first."""

    def __init__(self, direction: Direction, spec: LinkSpec) -> None:
        self.shaper = Shaper(spec, chance=random.random)
        self.queue = PacketQueue(direction.queue, super_packets=not spec.splits_super_packets)
        self._held: deque[tuple[float, int]] = deque()

    def apply(self, spec: LinkSpec) -> None:
        """Change from now on; packets already held move by the change of delay and keep order."""
        before, self.shaper.spec = self.shaper.spec, spec
        if before.splits_super_packets != spec.splits_super_packets:
            self.queue.split_super_packets(spec.splits_super_packets)
        shift_s = spec.delay_s - before.delay_s
        if shift_s:
            self._held = deque((due + shift_s, packet_id) for due, packet_id in self._held)
            self.shaper.shift(shift_s)

    def admit(self) -> None:
        """Take packets that arrived."""
        packets = self.queue.receive()
        now = time.monotonic()
        dropped = []
        for packet_id, length in packets:
            due = self.shaper.admit(now, length)
            if due is None:
                dropped.append(packet_id)
            else:
                self._held.append((due, packet_id))
        if dropped:
            self.queue.drop(dropped)

    def release(self, now: float) -> None:
        """Let go what is due, all in one verdict."""
        held = self._held
        last_id = None
        while held and held[0][0] <= now:
            last_id = held.popleft()[1]
        if last_id is not None:
            self.queue.release(last_id)

    def next_due(self) -> float | None:
        """Return when `release` has something to do, on the monotonic clock."""
        return self._held[0][0] if self._held else None

    def report(self) -> dict[str, Any]:
        """Return mode and counters."""
        shaper = self.shaper
        return {
            "mode": "packet" if shaper.spec.splits_super_packets else "gso",
            "packets": shaper.packets,
            "bytes": shaper.bytes,
            "drops": {
                "loss": shaper.lost_packets,
                "queue": shaper.overflow_packets,
                "kernel": self.queue.kernel_drops(),
            },
            "held_packets": len(self._held),
            "netlink_errors": self.queue.malformed_messages + self.queue.refused_requests,
        }


class UserSpaceLink:
    """The backend `nfqueue`.

    Raises: StateError when another emulator reads the queues.
    """

    name = "nfqueue"

    def __init__(self, topology: Topology) -> None:
        # A kernel link that was killed leaves the way past the queues open.
        rules.set_kernel_path(topology, open_=False)
        self._directions: dict[Direction, QueuedDirection] = {}
        try:
            for direction in topology.directions():
                self._directions[direction] = QueuedDirection(direction, topology.link)
        except BaseException:
            self.close()
            raise
        self._of_queue = {each.queue: each for each in self._directions.values()}

    def apply(self, direction: Direction, spec: LinkSpec) -> None:
        """Change one direction from now on."""
        self._directions[direction].apply(spec)

    def report(self, direction: Direction) -> dict[str, Any]:
        """Return mode and counters of one direction."""
        return self._directions[direction].report()

    def queues(self) -> Sequence[PacketQueue]:
        """Return the queues, to wait on."""
        return tuple(self._of_queue)

    def serve(self, ready: Sequence[PacketQueue]) -> float | None:
        """Admit from the ready queues, release what is due; return the seconds until the next."""
        for queue in ready:
            self._of_queue[queue].admit()
        now = time.monotonic()
        waits = []
        for each in self._directions.values():
            each.release(now)
            due = each.next_due()
            if due is not None:
                waits.append(due - now)
        return min(waits) if waits else None

    def close(self) -> None:
        """Give the queues up: packets in them are dropped, and the link is down."""
        for each in self._directions.values():
            each.queue.close()
