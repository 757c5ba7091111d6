"""The link as a user-space process: it delays the verdicts on packets that wait in the kernel."""

import random
import time
from collections.abc import Sequence
from typing import Any

from prfaas_netem import rules
from prfaas_netem.held_packets import HeldPackets
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.packet_copies import PacketCopies
from prfaas_netem.packet_queue import PacketQueue
from prfaas_netem.shaper import Shaper
from prfaas_netem.topology import Topology
from prfaas_netem.ways import Direction


class QueuedDirection:
    """One direction: its queue, its shaper, and the packets it holds."""

    def __init__(
        self, direction: Direction, spec: LinkSpec, *, copies: PacketCopies, seed: int
    ) -> None:
        # Each direction has chances of its own, so that traffic of one changes nothing in another.
        chances = random.Random(f"{seed} {direction.source} {direction.target}")  # noqa: S311
        self.shaper = Shaper(spec, chance=chances.random)
        self.queue = PacketQueue(direction.queue, super_packets=not spec.splits_super_packets)
        self._held = HeldPackets(self.queue, copies)
        if spec.needs_payload:
            self.queue.copy_whole(True)

    def apply(self, spec: LinkSpec) -> None:
        """Change from now on; packets already held move by the change of delay and keep order."""
        before, self.shaper.spec = self.shaper.spec, spec
        # A super-packet is never copied whole: it would not fit a message.
        if before.needs_payload and not spec.needs_payload:
            self.queue.copy_whole(False)
        if before.splits_super_packets != spec.splits_super_packets:
            self.queue.split_super_packets(spec.splits_super_packets)
        if spec.needs_payload and not before.needs_payload:
            self.queue.copy_whole(True)
        shift_s = spec.delay_s - before.delay_s
        if shift_s:
            self._held.shift(shift_s)
            self.shaper.shift(shift_s)

    def admit(self) -> None:
        """Take packets that arrived."""
        packets = self.queue.receive()
        now = time.monotonic()
        dropped = []
        for packet in packets:
            fate = self.shaper.admit(now, packet.length)
            if fate is None:
                dropped.append(packet.id)
            else:
                self._held.add(packet, fate)
        if dropped:
            self.queue.drop(dropped)

    def release(self, now: float) -> None:
        """Let go what is due."""
        self._held.release(now)

    def next_due(self) -> float | None:
        """Return when `release` has something to do, on the monotonic clock."""
        return self._held.next_due()

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
            "harmed": {
                "corrupted": shaper.corrupted_packets,
                "duplicated": shaper.duplicated_packets,
                "reordered": shaper.reordered_packets,
            },
            "held_packets": len(self._held),
            "netlink_errors": self.queue.malformed_messages + self.queue.refused_requests,
        }


class UserSpaceLink:
    """The backend `nfqueue`.

    Raises: StateError when another emulator reads the queues.
    """

    name = "nfqueue"

    def __init__(self, topology: Topology, *, seed: int) -> None:
        # A kernel link that was killed leaves the way past the queues open.
        rules.set_kernel_path(topology, open_=False)
        self._directions: dict[Direction, QueuedDirection] = {}
        self._copies = PacketCopies()
        try:
            for direction in topology.directions():
                spec = topology.way(direction.source, direction.target).spec
                self._directions[direction] = QueuedDirection(
                    direction, spec, copies=self._copies, seed=seed
                )
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
        self._copies.close()
