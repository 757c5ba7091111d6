"""Sans-IO machines that move granted items from a sender (prefill) to a receiver (decode).

A shell owns the sockets and calls in: `lane_*`, `receive`, `next_frame`, `on_timer`, each with the
time of a monotonic clock in seconds where it matters. Events come out of `take_events()`. Nothing
here blocks, and nothing is thread-safe: the shell holds one lock around every call.

    frame = machine.next_frame(lane)          # while the lane can be written to
    machine.receive(lane, frame, now)         # for every frame read; ProtocolError: close the lane
    machine.on_timer(now)                     # not later than machine.next_timer()
    machine.take_dead_lanes()                 # after every call: close these
    sender.sampled(lane_sample)               # five times a second: signals, room for background

What a machine does is spread over few files: `receiver` and `sender` take frames and lanes,
`receiver_rooms` and `sender_rooms` keep the rooms, `schedule` says whose chunk goes next, `signals`
what the paths carry.
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
