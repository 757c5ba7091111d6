"""Sans-IO machines that move granted items from a sender (prefill) to a receiver (decode).

A shell owns the sockets and calls in: `lane_*`, `receive`, `next_frame`, `on_timer`, each with the
time of a monotonic clock in seconds where it matters. Events come out of `take_events()`. Nothing
here blocks, and nothing is thread-safe: the shell holds one lock around every call.

    frame = machine.next_frame(lane, now)     # while the lane can be written to
    machine.receive(lane, frame, now)         # for every frame read; ProtocolError: close the lane
    machine.on_timer(now)                     # not later than machine.next_timer()
"""

from prfaas.transfer.events import (
    PeerJoined,
    PeerLost,
    PeerUp,
    ReceiveEvent,
    RoomFailed,
    RoomOpened,
    RoomReceived,
    RoomSent,
    SendEvent,
)
from prfaas.transfer.guard import ReceiverGuard, SenderGuard
from prfaas.transfer.layout import Entry, Group, Layout
from prfaas.transfer.reasons import Reason
from prfaas.transfer.receiver import Receiver
from prfaas.transfer.sender import Sender

__all__ = [
    "Entry",
    "Group",
    "Layout",
    "PeerJoined",
    "PeerLost",
    "PeerUp",
    "Reason",
    "ReceiveEvent",
    "Receiver",
    "ReceiverGuard",
    "RoomFailed",
    "RoomOpened",
    "RoomReceived",
    "RoomSent",
    "SendEvent",
    "Sender",
    "SenderGuard",
]
