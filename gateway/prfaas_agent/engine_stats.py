"""The engine's transfer counters as last heard, over one stream from its socket."""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from prfaas.transfer.node_signals import NodeSignals, peers_from_json
from prfaas.transfer.signals import PeerSignals
from prfaas_agent.room_book import RoomBook
from prfaas_coord.again import again_and_again
from prfaas_coord.backoff import Backoff

PERIOD_MS = 200
STALE_S = 2.0
_CONNECT_TIMEOUT_S = 2.0
_MAX_LINE_BYTES = 16 << 20
_MAX_PEERS = 256
_SHARE_S = 0.02


class EngineStats:
    """Follows the socket `path`; whatever the engine does, `latest` is at most as old as it says.

    One event loop only.
    """

    def __init__(self, path: Path, *, node: str) -> None:
        self.node = node
        self.rooms = RoomBook()
        self._path = path
        self._values: Mapping[str, Any] = {}
        self._peers: Mapping[str, PeerSignals] = {}
        self._heard_s: float | None = None
        self._line = b""
        self._line_s = float("-inf")
        self._changed = asyncio.Event()

    @property
    def age_s(self) -> float | None:
        """How old the counters are, None if there never were any."""
        return None if self._heard_s is None else time.monotonic() - self._heard_s

    @property
    def is_fresh(self) -> bool:
        """Say whether the engine tells its counters now."""
        age_s = self.age_s
        return age_s is not None and age_s < STALE_S

    @property
    def values(self) -> Mapping[str, Any]:
        """The counters as the engine says them; empty where they are too old to mean anything."""
        return self._values if self.is_fresh else {}

    def signals(self) -> NodeSignals:
        """Return what gateways want to know of them."""
        return NodeSignals(self.node, self.age_s, self._peers if self.is_fresh else {})

    def signals_line(self) -> bytes:
        """Return `signals` as a line; all who ask at about the same time share it."""
        now = time.monotonic()
        if now - self._line_s > _SHARE_S:
            self._line, self._line_s = self.signals().to_line(), now
        return self._line

    async def wait_changed(self, timeout_s: float) -> None:
        """Wait for newer counters, but not longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    async def follow(self) -> None:
        """Keep the stream open for ever: the engine comes and goes."""
        backoff = Backoff(first_s=0.1, limit_s=1.0, reset_after_s=STALE_S)
        await again_and_again(self._read_stream, what=f"stats socket {self._path}", backoff=backoff)

    async def _read_stream(self) -> None:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(self._path, limit=_MAX_LINE_BYTES)
        try:
            writer.write(json.dumps({"stream": PERIOD_MS}).encode() + b"\n")
            while True:
                async with asyncio.timeout(STALE_S):
                    line = await reader.readline()
                if not line.endswith(b"\n"):
                    return
                self.take(line)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def take(self, line: bytes) -> None:
        """Take a line of counters. Raises: ValueError if it is none."""
        values = json.loads(line)
        if not isinstance(values, dict):
            raise ValueError("stats are not a JSON object")
        self._peers = peers_from_json(
            {name: peer["signals"] for name, peer in peers_of(values) if "signals" in peer}
        )
        self._values, self._heard_s = values, time.monotonic()
        self.rooms.take(values)
        self._line_s = float("-inf")
        self._changed.set()
        self._changed = asyncio.Event()


def peers_of(values: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the peers in an engine's counters by name, each name once.

    A sender names its peers by node id, a receiver by address and tells the node id besides.
    """
    found: dict[str, Mapping[str, Any]] = {}
    raw = values.get("peers")
    for key, peer in list(raw.items())[:_MAX_PEERS] if isinstance(raw, dict) else ():
        if isinstance(peer, dict):
            name = str(peer.get("node_id") or key)
            found[key if name in found else name] = peer
    return list(found.items())
