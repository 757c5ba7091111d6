"""The encodings of a payload: its byte planes, each through Zstandard if that makes it smaller.

Of floating point numbers the bytes with the exponents repeat and those with the mantissas do not,
so bytes of one place in their elements go together. Zstandard is set to search for next to no
matches and so to spend its time on entropy coding, which is what planes of exponents give in to.

Payload: the size of each plane as u32, then the planes. A plane as large as its part of the
payload stands there as it is, a smaller one is one Zstandard frame that says its decoded size.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from prfaas.errors import ProtocolError
from prfaas.wire import Encoding

Plane = NDArray[np.uint8]
Buffer = bytes | memoryview

SAMPLE_BYTES = 64 << 10
WIDTHS = tuple(int(encoding) for encoding in Encoding if encoding)
_SIZE = struct.Struct("!I")
_SMALLER = 0.98
_BETTER = 0.99
_ELEMENTS: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
_PARAMETERS = zstandard.ZstdCompressionParameters(
    window_log=17,
    hash_log=6,
    chain_log=6,
    search_log=1,
    min_match=7,
    target_length=0,
    strategy=zstandard.STRATEGY_FAST,
    write_content_size=True,
    write_checksum=False,
)


class Codec:
    """Encodes and decodes for one thread; what takes long is done without the GIL.

    Its scratch memory grows to twice the largest payload and stays: pages of new memory cost as
    much as splitting does.
    """

    def __init__(self) -> None:
        self._gathered = np.empty(0, np.uint8)
        self._planes = np.empty(0, np.uint8)
        self._compressor = zstandard.ZstdCompressor(compression_params=_PARAMETERS)
        self._decompressor = zstandard.ZstdDecompressor()

    def split(self, views: Sequence[memoryview], width: int) -> list[Plane]:
        """Return the byte planes of a payload, whose bytes are a multiple of `width`.

        They are copies, in memory that the next call uses again.
        """
        num_bytes = sum(map(len, views))
        if self._planes.size < num_bytes:
            self._planes = np.empty(num_bytes, np.uint8)
        data = views[0] if len(views) == 1 else self._gather(views, num_bytes)
        return _split(data, list(self._planes[:num_bytes].reshape(width, -1)))

    def encode(self, planes: Sequence[Plane]) -> list[Buffer] | None:
        """Return the payload, in parts of their own; None if it would not be smaller."""
        parts = [self._encode_plane(plane) for plane in planes]
        head = b"".join(_SIZE.pack(len(part)) for part in parts)
        plain_bytes = sum(plane.size for plane in planes)
        if len(head) + sum(map(len, parts)) >= _SMALLER * plain_bytes:
            return None
        return [head, *(part if isinstance(part, bytes) else bytes(part) for part in parts)]

    def best_width(self, sample: bytes, item_bytes: int) -> int:
        """Return the width, of those that divide items, whose planes are smallest.

        A larger one, which takes longer, must be better by one percent.
        """
        best, smallest = WIDTHS[0], float("inf")
        for width in WIDTHS:
            if item_bytes % width or len(sample) % width:
                continue
            size = sum(len(self._encode_plane(plane)) for plane in _planes_of(sample, width))
            if size < _BETTER * smallest:
                best, smallest = width, size
        return best

    def decode(self, payload: memoryview, plain_bytes: int, width: int) -> list[Buffer]:
        """Return the planes, whose sizes add up to `plain_bytes`. Raises: ProtocolError.

        No more than `plain_bytes` is allocated, whatever the payload says.
        """
        plane_bytes, rest = divmod(plain_bytes, width)
        at = width * _SIZE.size
        if rest or len(payload) < at:
            raise ProtocolError(f"encoding {width}: {len(payload)} for {plain_bytes} bytes")
        sizes = [size for (size,) in _SIZE.iter_unpack(payload[:at])]
        if max(sizes) > plane_bytes or at + sum(sizes) != len(payload):
            raise ProtocolError(f"encoding {width}: planes of {sizes} bytes, {len(payload)} in all")
        planes: list[Buffer] = []
        for size in sizes:
            planes.append(self._decode_plane(payload[at : at + size], plane_bytes))
            at += size
        return planes

    def _gather(self, views: Sequence[memoryview], num_bytes: int) -> memoryview:
        if self._gathered.size < num_bytes:
            self._gathered = np.empty(num_bytes, np.uint8)
        data, at = self._gathered.data[:num_bytes], 0
        for view in views:
            data[at : at + len(view)] = view
            at += len(view)
        return data

    def _encode_plane(self, plane: Plane) -> Buffer:
        packed = self._compressor.compress(plane.data)
        return packed if len(packed) < _SMALLER * plane.size else plane.data

    def _decode_plane(self, data: memoryview, plane_bytes: int) -> Buffer:
        if len(data) == plane_bytes:
            return data
        try:
            # Asked first: the library allocates what the frame says.
            if zstandard.frame_content_size(data) != plane_bytes:
                raise ProtocolError(f"a plane does not decode to {plane_bytes} bytes")
            plane: bytes = self._decompressor.decompress(data, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise ProtocolError(f"a plane is damaged: {error}") from None
        if len(plane) != plane_bytes:
            raise ProtocolError(f"a plane decodes to {len(plane)}, not {plane_bytes} bytes")
        return plane


def sample_of(views: Sequence[memoryview]) -> bytes:
    """Return the first bytes of a payload, a copy."""
    sample = bytearray()
    for view in views:
        sample += view[: SAMPLE_BYTES - len(sample)]
        if len(sample) >= SAMPLE_BYTES:
            break
    return bytes(sample)


def _planes_of(data: Buffer, width: int) -> list[Plane]:
    return _split(data, [np.empty(len(data) // width, np.uint8) for _ in range(width)])


def _split(data: Buffer, planes: list[Plane]) -> list[Plane]:
    elements = np.frombuffer(data, _ELEMENTS[len(planes)])
    for place, plane in enumerate(planes):
        if place:
            np.right_shift(elements, 8 * place, out=plane, casting="unsafe")
        else:
            np.copyto(plane, elements, casting="unsafe")
    return planes


def join(planes: Sequence[Buffer], out: Buffer) -> None:
    """Write the elements whose byte planes these are into `out`, which is as large as all."""
    width = len(planes)
    elements = np.frombuffer(out, _ELEMENTS[width])
    np.copyto(elements, np.frombuffer(planes[-1], np.uint8))
    for plane in reversed(planes[:-1]):
        np.left_shift(elements, 8, out=elements)
        np.bitwise_or(elements, np.frombuffer(plane, np.uint8), out=elements)
