"""What a node holds inside, counted; all of it is zero when no room is open."""

from typing import Any


def tables_of(node: Any) -> dict[str, int]:
    """Return the sizes of a node's tables and queues."""
    machine, loop = node._machine, node._loop
    with loop.lock:
        peers, lanes = list(machine._peers.values()), list(loop._lanes.values())
        found = {
            "rooms": len(machine._rooms),
            "events": len(loop._events),
            "queued_bytes": sum(lane.queued_bytes for lane in lanes),
            "lanes_without_machine": len(set(loop._lanes) ^ set(machine._lanes)),
            "dead_lanes": len(machine._dead_lanes) + sum(len(t._dead) for t in loop._threads),
            "lanes_of_threads": sum(len(t.lanes) for t in loop._threads) - len(lanes),
            "unanswered_aborts": sum(len(peer.unanswered_aborts) for peer in peers),
            "control": sum(len(peer.control) for peer in peers)
            + sum(len(lane.control) for lane in machine._lanes.values()),
        }
        return found | (
            _of_sender(machine) if hasattr(machine, "_traffic") else _of_receiver(machine)
        )


def _of_sender(machine: Any) -> dict[str, int]:
    peers = list(machine._peers.values())
    return {
        "chunks_queued": machine.num_queued_chunks,
        "foreground_bytes": machine._traffic.foreground_bytes,
        "background_bytes": sum(peer.background_bytes for peer in peers),
        "backlog_bytes": sum(peer.backlog_bytes for peer in peers),
        "in_flight": sum(len(lane.in_flight) for lane in machine._lanes.values()),
        "legs_queued": sum(
            len(queue._fresh) + len(queue._rest)
            for peer in peers
            for queue in (peer.foreground, peer.background)
            if queue.next_leg() is not None
        ),
    }


def _of_receiver(machine: Any) -> dict[str, int]:
    lanes = machine._lanes.values()
    return {
        "targets": sum(lane.target is not None for lane in lanes),
        "acks": sum(lane.num_acks + len(lane.acks) for lane in lanes),
    }
