"""Lanes that a receiver has dialled besides: around lanes that stall, before one that must end."""

from collections.abc import Mapping

from prfaas.transfer.machine import LaneId
from prfaas.transfer.receive_peer import ReceivePeer
from prfaas.transfer.receiver_rooms import ReceiverRooms

UNANSWERED_S = 0.1
"""A dial unanswered for so long, and for three round trips, is begun anew: TCP would wait."""
NO_ANSWER = "no answer"
NO_MORE_NEEDED = "no more needed"


class SpareLanes(ReceiverRooms):
    """What keeps a peer within reach: see `dial_around` and `replace`."""

    def dial_around(
        self, stalled: Mapping[LaneId, float], dialled: Mapping[LaneId, float], now: float
    ) -> None:
        """Dial past an outage. To be called about ten times a second.

        While all lanes of a peer with open rooms stall, one more is dialled, again and again: after
        a cut TCP waits up to a second and more before it sends again, a fresh connection does not.
        The stalled ones go on when they can, so nothing that arrived is sent twice. `stalled` are
        the round trips in seconds of lanes that stall, `dialled` for how long lanes have waited for
        their connection.
        """
        self.advance(now)
        waited_for = {room.address for room in self._rooms.values()}
        for peer in self._peers.values():
            up = [number for number, lane in peer.lanes.items() if lane.welcome]
            if peer.address not in waited_for:
                self._drop_spares(peer)
            elif up and all(number in stalled for number in up):
                patience_s = max(UNANSWERED_S, *(3 * stalled[number] for number in up))
                self._give_up(peer, {n for n, for_s in dialled.items() if for_s >= patience_s})
                self._hurry(peer)

    def replace(self, lane: LaneId, reason: str) -> None:
        """Close a lane; if the peer stands on it alone, as soon as another one is welcome."""
        state = self._lanes[lane]
        state.condemned = reason
        if state.peer.stands_on(state):
            self._hurry(state.peer)
        else:
            self._dead_lanes.append((lane, reason))

    def renew(self, lane: LaneId, reason: str) -> None:
        """Replace a lane, unless another one of the peer is on its way: one at a time."""
        state = self._lanes.get(lane)
        if state is not None and not state.condemned and state.peer.is_whole:
            self.replace(lane, reason)

    def _hurry(self, peer: ReceivePeer) -> None:
        """Have a lane dialled at once, unless one is being dialled."""
        slot = peer.slot_to_dial(self._now)
        if slot is not None:
            slot.dial_s = min(slot.dial_s, self._now)
            self._wake_at(slot.dial_s)

    def _give_up(self, peer: ReceivePeer, dialled: set[LaneId]) -> None:
        for slot in peer.slots:
            if slot.lane in dialled:
                assert slot.lane is not None
                slot.reset_backoff()
                self._dead_lanes.append((slot.lane, NO_ANSWER))

    def _drop_spares(self, peer: ReceivePeer) -> None:
        while peer.slots[-1].is_spare:
            number = peer.slots[-1].lane
            if number is not None:
                if peer.stands_on(peer.lanes[number]):
                    return
                del self._lanes[number], peer.lanes[number]
                self._dead_lanes.append((number, NO_MORE_NEEDED))
            peer.slots.pop()
