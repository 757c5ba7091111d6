"""Frames between a receiver (decode) and a sender (prefill): see docs/wire-format.md."""

from prfaas.wire.codec import decode_body, encode, set_digest
from prfaas.wire.decoder import Decoder
from prfaas.wire.frames import (
    Abort,
    Aborted,
    Ack,
    Chunk,
    Done,
    Encoding,
    Feature,
    Fin,
    Foreign,
    Frame,
    Hello,
    Open,
    Ping,
    Pong,
    Priority,
    Refuse,
    Sendable,
    Welcome,
)

__all__ = [
    "Abort",
    "Aborted",
    "Ack",
    "Chunk",
    "Decoder",
    "Done",
    "Encoding",
    "Feature",
    "Fin",
    "Foreign",
    "Frame",
    "Hello",
    "Open",
    "Ping",
    "Pong",
    "Priority",
    "Refuse",
    "Sendable",
    "Welcome",
    "decode_body",
    "encode",
    "set_digest",
]
