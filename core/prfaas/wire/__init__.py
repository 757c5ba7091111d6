"""Frames between a receiver (decode) and a sender (prefill): see docs/wire-format.md."""

from prfaas.wire.codec import decode_body, encode
from prfaas.wire.decoder import Decoder
from prfaas.wire.frames import (
    Abort,
    Aborted,
    Ack,
    Chunk,
    Done,
    Fin,
    Frame,
    Hello,
    Open,
    Ping,
    Pong,
    Refuse,
    Welcome,
)

__all__ = [
    "Abort",
    "Aborted",
    "Ack",
    "Chunk",
    "Decoder",
    "Done",
    "Fin",
    "Frame",
    "Hello",
    "Open",
    "Ping",
    "Pong",
    "Refuse",
    "Welcome",
    "decode_body",
    "encode",
]
