"""The arena: one file, mapped by the pool service and all its clients.

    superblock (4096 bytes) | one record of 64 bytes per block | blocks

A record says which entry its block belongs to, and is itself checksummed; the entry's first block
begins with metadata (see `entry_form`). The service alone writes records and metadata. It writes an
entry's first record last and clears it first: an entry is there, whole, or it is not, wherever a
process is killed. Items are verified by their digests whenever they are read, so bytes that a
dying, sleeping or foreign process left in a block are never taken for an item.
"""

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from prfaas.errors import PreflightError, StateError

MAGIC = b"PRFPOOL1"
SUPERBLOCK_BYTES = 4096
_SUPER = struct.Struct("<8sQQ16s")
_RECORD = np.dtype(
    [
        ("oid", "<u8"),
        ("index", "<u4"),
        ("blocks", "<u4"),
        ("meta", "<u8"),
        ("pad", "V32"),
        ("check", "<u8"),
    ]
)
assert _RECORD.itemsize == 64
_PAGE = mmap.PAGESIZE


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry whose records are whole: its blocks in order and the digest of its metadata."""

    oid: int
    blocks: tuple[int, ...]
    meta_digest: int


class Arena:
    """An open arena. `blocks` is the memory of all blocks; it aliases the file."""

    def __init__(self, file: int, *, block_bytes: int, num_blocks: int, arena_id: bytes) -> None:
        self.block_bytes = block_bytes
        self.num_blocks = num_blocks
        self.arena_id = arena_id
        self._file = file
        self._map = mmap.mmap(file, _file_bytes(block_bytes, num_blocks))
        everything = np.frombuffer(self._map, dtype=np.uint8)
        table_end = SUPERBLOCK_BYTES + num_blocks * _RECORD.itemsize
        self._records = everything[SUPERBLOCK_BYTES:table_end].view(_RECORD)
        self.blocks: NDArray[np.uint8] = everything[_data_offset(num_blocks) :]

    @classmethod
    def create(cls, path: Path, *, block_bytes: int, num_blocks: int) -> "Arena":
        """Open or make the arena for its one service; another shape of file is made anew.

        All its memory is taken here, so that no write to it fails later.

        Raises:
            StateError: another service has it.
            PreflightError: the file cannot be made, or there is no room for it.
        """
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise PreflightError(f"pool arena {path}: {error.strerror}") from None
        try:
            _lock(file, path)
            arena_id = _prepare(file, block_bytes=block_bytes, num_blocks=num_blocks)
            return cls(file, block_bytes=block_bytes, num_blocks=num_blocks, arena_id=arena_id)
        except OSError as error:
            os.close(file)
            raise PreflightError(f"pool arena {path}: {error.strerror}") from None
        except StateError:
            os.close(file)
            raise

    @classmethod
    def join(cls, path: Path, *, arena_id: bytes) -> "Arena":
        """Open an arena as a client of its service.

        Raises:
            StateError: the file is not the one that the service means.
        """
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise StateError(f"pool arena {path}: {error.strerror}") from None
        found = _read_superblock(file)
        if found is None or found[2] != arena_id:
            os.close(file)
            raise StateError(f"pool arena {path}: not the arena of the pool service")
        block_bytes, num_blocks, _ = found
        return cls(file, block_bytes=block_bytes, num_blocks=num_blocks, arena_id=arena_id)

    def close(self) -> None:
        """Unmap and close; views of `blocks` keep the mapping until they go."""
        self._records = self._records[:0].copy()
        self.blocks = self.blocks[:0].copy()
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self._file)

    def spans(self, blocks: tuple[int, ...], offset: int, size: int) -> Iterator[NDArray[np.uint8]]:
        """Return the memory of `size` bytes from `offset` on of an entry in these blocks."""
        while size > 0:
            index, start = divmod(offset, self.block_bytes)
            length = min(size, self.block_bytes - start)
            at = blocks[index] * self.block_bytes + start
            yield self.blocks[at : at + length]
            offset += length
            size -= length

    def write(self, blocks: tuple[int, ...], offset: int, data: NDArray[np.uint8]) -> None:
        """Copy bytes into an entry."""
        done = 0
        for span in self.spans(blocks, offset, data.nbytes):
            span[:] = data[done : done + span.nbytes]
            done += span.nbytes

    def read(self, blocks: tuple[int, ...], offset: int, size: int) -> NDArray[np.uint8]:
        """Return a copy of bytes of an entry."""
        copy = np.empty(size, dtype=np.uint8)
        done = 0
        for span in self.spans(blocks, offset, size):
            copy[done : done + span.nbytes] = span
            done += span.nbytes
        return copy

    def record(self, oid: int, blocks: tuple[int, ...], meta_digest: int) -> None:
        """Make a written entry count; its first record last. The service alone may."""
        for index in range(len(blocks) - 1, -1, -1):
            record = np.zeros(1, dtype=_RECORD)
            record["oid"], record["index"], record["blocks"] = oid, index, len(blocks)
            record["meta"] = meta_digest
            record["check"] = _record_check(record)
            self._records[blocks[index]] = record[0]

    def clear(self, blocks: Iterable[int]) -> None:
        """Make an entry not count any more, its first record first. The service alone may."""
        for block in blocks:
            self._records[block] = np.zeros(1, dtype=_RECORD)[0]

    def find_entries(self) -> list[FoundEntry]:
        """Return all whole entries and clear all other records. For the service, at its start."""
        in_use = np.flatnonzero(self._records["oid"])
        parts: dict[int, dict[int, int]] = {}
        heads: dict[int, tuple[int, int]] = {}
        for block in in_use.tolist():
            record = self._records[block : block + 1]
            if int(record["check"][0]) != _record_check(record):
                continue
            oid, index = int(record["oid"][0]), int(record["index"][0])
            parts.setdefault(oid, {})[index] = block
            if index == 0:
                heads[oid] = int(record["blocks"][0]), int(record["meta"][0])
        found = []
        for oid, (count, meta_digest) in heads.items():
            if parts[oid].keys() == set(range(count)):
                blocks = tuple(parts[oid][index] for index in range(count))
                found.append(FoundEntry(oid, blocks, meta_digest))
        kept = {block for entry in found for block in entry.blocks}
        self.clear(block for block in in_use.tolist() if block not in kept)
        return found


def _record_check(record: NDArray[np.void]) -> int:
    return xxhash.xxh3_64_intdigest(record.tobytes()[:-8])


def _data_offset(num_blocks: int) -> int:
    end = SUPERBLOCK_BYTES + num_blocks * _RECORD.itemsize
    return -(-end // _PAGE) * _PAGE


def _file_bytes(block_bytes: int, num_blocks: int) -> int:
    return _data_offset(num_blocks) + num_blocks * block_bytes


def _lock(file: int, path: Path) -> None:
    """Take the lock that ends with this process, however it ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateError(f"pool arena {path}: another pool service has it") from None


def _prepare(file: int, *, block_bytes: int, num_blocks: int) -> bytes:
    """Return the id of an arena of this shape, made anew where the file has another."""
    os.fchmod(file, 0o600)
    found = _read_superblock(file)
    size = _file_bytes(block_bytes, num_blocks)
    is_same = found is not None and found[:2] == (block_bytes, num_blocks)
    if found is not None and is_same and os.fstat(file).st_size == size:
        return found[2]
    arena_id = os.urandom(16)
    os.ftruncate(file, 0)
    os.posix_fallocate(file, 0, size)
    body = _SUPER.pack(MAGIC, block_bytes, num_blocks, arena_id)
    os.pwrite(file, body + xxhash.xxh3_64_digest(body), 0)
    return arena_id


def _read_superblock(file: int) -> tuple[int, int, bytes] | None:
    raw = os.pread(file, _SUPER.size + 8, 0)
    body, check = raw[: _SUPER.size], raw[_SUPER.size :]
    if len(body) < _SUPER.size or xxhash.xxh3_64_digest(body) != check:
        return None
    magic, block_bytes, num_blocks, arena_id = _SUPER.unpack(body)
    return (block_bytes, num_blocks, arena_id) if magic == MAGIC else None
