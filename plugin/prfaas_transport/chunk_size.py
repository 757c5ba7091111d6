"""How large the chunks of a path should be."""

CHUNK_S = 0.01
SMALLEST_BYTES = 256 << 10
FIRST_BYTES = 1 << 20
LARGEST_BYTES = 4 << 20


def chunk_size(path_bytes_per_s: float) -> int:
    """Return the bytes of a chunk: a hundredth of a second of the path, 0 where it is not known.

    Small chunks let a small room in between sooner, and less is sent again when a lane dies; every
    chunk costs both sides about as much CPU as copying 200 KB.

    >>> [chunk_size(bits / 8) >> 10 for bits in (0, 100e6, 1e9, 3e9, 100e9)]
    [1024, 256, 1024, 2048, 4096]
    """
    if not path_bytes_per_s:
        return FIRST_BYTES
    wanted = max(1, int(path_bytes_per_s * CHUNK_S))
    return min(max(1 << (wanted.bit_length() - 1), SMALLEST_BYTES), LARGEST_BYTES)
