"""Golden frames and the table of malformed ones, from tests/vectors."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from prfaas import wire
from prfaas.errors import ProtocolError
from prfaas.wire import Chunk, Decoder, Done, Frame, encode

VECTORS = Path(__file__).parents[2] / "vectors"
GOLDEN = json.loads((VECTORS / "wire-frames.json").read_text())
MALFORMED = json.loads((VECTORS / "wire-malformed.json").read_text())
FOREIGN = json.loads((VECTORS / "wire-foreign.json").read_text())
BYTES = {("Hello", "digest"), ("Hello", "auth"), ("Welcome", "auth"), ("Open", "capability")}


def frame_of(vector: dict[str, Any]) -> Frame:
    def value(name: str, raw: Any) -> Any:
        if (vector["frame"], name) in BYTES:
            return bytes.fromhex(raw)
        return _tuples(raw)

    fields = {name: value(name, raw) for name, raw in vector["fields"].items()}
    frame: Frame = getattr(wire, vector["frame"])(**fields)
    return frame


def _tuples(raw: Any) -> Any:
    return tuple(_tuples(item) for item in raw) if isinstance(raw, list) else raw


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda v: v["frame"])
def test_encodes_to_golden_bytes(vector: dict[str, Any]) -> None:
    assert encode(frame_of(vector)).hex() == vector["hex"]


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda v: v["frame"])
def test_decodes_golden_bytes_one_byte_at_a_time(vector: dict[str, Any]) -> None:
    decoder = Decoder()
    data = bytes.fromhex(vector["hex"])
    for at, byte in enumerate(data):
        assert decoder.next_frame() is None, at
        decoder.receive(bytes([byte]))
    assert decoder.next_frame() == frame_of(vector)
    assert decoder.buffered_bytes == 0


def test_golden_frames_cover_every_type() -> None:
    kinds = {vector["frame"] for vector in GOLDEN}
    assert kinds == {t.__name__ for t in wire.Sendable.__args__}


@pytest.mark.parametrize("vector", MALFORMED, ids=lambda v: v["what"])
def test_malformed_frame_is_a_protocol_error(vector: dict[str, Any]) -> None:
    decoder = Decoder()
    decoder.receive(bytes.fromhex(vector["hex"]))
    with pytest.raises(ProtocolError, match=re.escape(vector["error"])):
        decoder.next_frame()


@pytest.mark.parametrize("vector", FOREIGN, ids=lambda v: v["what"])
def test_another_version_is_told_apart_from_garbage_and_then_ignored(
    vector: dict[str, Any],
) -> None:
    decoder = Decoder()
    decoder.receive(bytes.fromhex(vector["hex"]))
    assert decoder.next_frame() == wire.Foreign(vector["version"])
    decoder.receive(b"x" * 1000)
    assert decoder.next_frame() is None
    assert decoder.buffered_bytes == 0


def test_the_version_cannot_change_in_mid_stream() -> None:
    decoder = Decoder()
    decoder.receive(encode(Done(1, 1)) + bytes.fromhex(FOREIGN[0]["hex"]))
    assert decoder.next_frame() == Done(1, 1)
    with pytest.raises(ProtocolError, match="wire version 1"):
        decoder.next_frame()


def test_a_refusal_speaks_the_peers_version() -> None:
    refusal = wire.Refuse("version_mismatch", "", version=1)
    assert encode(refusal) == b"PF\x01" + encode(wire.Refuse("version_mismatch", ""))[3:]


def test_a_chunk_without_an_encoding_is_as_large_as_its_payload() -> None:
    assert Chunk(1, 1, 0, 0, 0, 0, 1, 10) == Chunk(1, 1, 0, 0, 0, 0, 1, 10, plain_bytes=10)


def test_payload_is_left_to_the_caller() -> None:
    chunk = Chunk(1, 1, 0, 0, 0, 0, 1, 10)
    decoder = Decoder()
    decoder.receive(encode(chunk) + b"0123")
    assert decoder.next_frame() == chunk
    assert decoder.next_frame() is None
    assert decoder.take_payload() == b"0123"
    assert decoder.payload_left == 6
    decoder.skip_payload(6)
    decoder.receive(encode(Done(1, 1)))
    assert decoder.next_frame() == Done(1, 1)


def test_payload_cannot_be_skipped_past_its_end() -> None:
    decoder = Decoder()
    decoder.receive(encode(Chunk(1, 1, 0, 0, 0, 0, 1, 4)))
    decoder.next_frame()
    with pytest.raises(ProtocolError):
        decoder.skip_payload(5)


@pytest.mark.parametrize(
    "frame",
    [
        wire.Done(-1, 0),
        wire.Done(1 << 64, 0),
        wire.Abort(1, 1, "Not A Word", ""),
        wire.Abort(1, 1, "word", "x" * 1025),
        wire.Hello("n", 0, 0, 1, b"short", ()),
        wire.Ack(1, 1, tuple(range(4000))),
        wire.Hello("n", 0, 0, 1, bytes(32), (), auth=bytes(65)),
        wire.Open(1, 1, 1, 0, (), capability=bytes(65)),
        wire.Chunk(1, 1, 0, 0, 0, 0, 1, 10, digest=1 << 64),
        wire.Foreign(3),
    ],
    ids=repr,
)
def test_encode_refuses_what_does_not_fit(frame: Frame) -> None:
    with pytest.raises(ValueError):
        encode(frame)
