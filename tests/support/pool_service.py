"""A real pool service, and items whose right bytes follow from their page."""

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prfaas.blocks.namespace import Namespace
from prfaas_pool.client import PoolClient

NAMESPACE = Namespace("model", "layout")


class PoolProcess:
    """`python -m prfaas_pool` with its arena in a directory; may be killed and started again."""

    def __init__(self, directory: Path, *, num_bytes: int, block_bytes: int = 4096) -> None:
        self.socket = directory / "pool.sock"
        self.arena = directory / "pool.arena"
        self.command = [sys.executable, "-m", "prfaas_pool", "--arena", str(self.arena)]
        self.command += ["--socket", str(self.socket), "--bytes", str(num_bytes)]
        self.command += ["--block-bytes", str(block_bytes)]
        self._log = (directory / "pool.log").open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=self._log, stdin=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise AssertionError(Path(self._log.name).read_text()[-2000:])

    def kill(self) -> None:
        self._process.kill()
        self._reap()

    def stop(self) -> None:
        self._process.terminate()
        self._reap()

    def close(self) -> None:
        if self._process.poll() is None:
            self.stop()
        self._log.close()

    def _reap(self) -> None:
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


def page_hashes(tokens: Sequence[int], page: int = 4) -> list[str]:
    """Return one hash per full page, each of all tokens up to the page's end."""
    ends = range(page, len(tokens) + 1, page)
    return [hashlib.sha256(repr(list(tokens[:end])).encode()).hexdigest() for end in ends]


def right_item(group: str, key: bytes, size: int) -> NDArray[np.uint8]:
    """Return the only right bytes of a page's item."""
    word = hashlib.sha256(group.encode() + key).digest()
    return np.frombuffer((word * (size // len(word) + 1))[:size], dtype=np.uint8)


def store(client: PoolClient, chain: bytes, first: int, *, group: str, size: int) -> int:
    """Store right items."""

    def item(position: int) -> NDArray[np.uint8]:
        return right_item(group, chain[position * 16 : position * 16 + 16], size)

    return client.store(chain, first, group=group, item_bytes=size, item=item)


def load(client: PoolClient, chain: bytes, first: int, *, group: str, size: int) -> int:
    """Load items, assert that every one is right, and return how many there were."""

    def take(position: int, data: NDArray[np.uint8]) -> None:
        expected = right_item(group, chain[position * 16 : position * 16 + 16], size)
        assert np.array_equal(data, expected), f"wrong bytes of page {position}"

    return client.load(chain, first, group=group, item_bytes=size, take=take)
