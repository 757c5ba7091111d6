"""Follow the agents of all engine nodes: one stream each, for as long as the node is registered."""

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from prfaas.records import NodeRecord, Role
from prfaas.transfer.node_signals import NodeSignals
from prfaas_coord.companion import Companion
from prfaas_gateway.fleet import View
from prfaas_gateway.signal_book import STALE_S, SignalBook

logger = logging.getLogger(__name__)

LOOK_S = 0.2
_BACKOFF_FIRST_S = 0.1
_BACKOFF_LAST_S = 2.0
_CONNECT_TIMEOUT_S = 2.0
#: A node that talks too much is not listened to more often than this.
_LEAST_GAP_S = 0.05

Tls = Callable[[], ssl.SSLContext]
_Target = tuple[str, str]  # node name, URL


class SignalStreams:
    """Writes what it hears into a `SignalBook`. `tls` gives the context for engines, None: none."""

    def __init__(
        self, view: View, book: SignalBook, session: aiohttp.ClientSession, tls: Tls | None
    ) -> None:
        self._view = view
        self._book = book
        self._session = session
        self._tls = tls
        self._streams: dict[_Target, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Start and end streams as nodes come and go, until cancelled."""
        known = None
        async with asyncio.TaskGroup() as group:
            while True:
                nodes = self._view.nodes
                if nodes is not known:
                    known = nodes
                    self._adjust(group, {_target(n) for n in nodes.values() if _is_followed(n)})
                await asyncio.sleep(LOOK_S)

    def _adjust(self, group: asyncio.TaskGroup, wanted: set[_Target]) -> None:
        for target in [target for target in self._streams if target not in wanted]:
            self._streams.pop(target).cancel()
        for target in wanted - self._streams.keys():
            self._streams[target] = group.create_task(self._follow(target))
        self._book.retain(name for name, _ in wanted)

    async def _follow(self, target: _Target) -> None:
        """Listen to one agent, and again whenever that ends, until cancelled."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            began_s = _now_s()
            try:
                await self._listen(*target)
                problem = "the stream ended"
            except Exception as error:
                # A stream's outermost frame: whatever an agent says must not end the gateway.
                problem = f"{type(error).__name__}: {error}"
            logger.debug("signals of %s: %s", target[0], problem)
            if _now_s() - began_s >= STALE_S:
                backoff_s = _BACKOFF_FIRST_S
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            backoff_s = min(2 * backoff_s, _BACKOFF_LAST_S)

    async def _listen(self, node: str, url: str) -> None:
        """Note every line until the stream ends. Raises: ClientError, TimeoutError, ValueError."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=STALE_S
        )
        tls: ssl.SSLContext | bool = True if self._tls is None else self._tls()
        async with self._session.get(
            f"{url}/signals", timeout=timeout, ssl=tls, allow_redirects=False
        ) as response:
            if response.status != 200:
                raise ValueError(f"HTTP status {response.status}")
            while line := await response.content.readline():
                self._book.note(node, NodeSignals.from_line(line), _now_s())
                await asyncio.sleep(_LEAST_GAP_S)


@asynccontextmanager
async def following(streams: SignalStreams) -> AsyncIterator[None]:
    """Follow while the context lasts."""
    companion = Companion()
    await companion.start(streams.run(), name="signals")
    try:
        yield
    finally:
        await companion.stop(None, None)


def _is_followed(node: NodeRecord) -> bool:
    return node.role is not Role.GATEWAY and bool(node.agent_url)


def _target(node: NodeRecord) -> _Target:
    return node.name, node.agent_url


def _now_s() -> float:
    return asyncio.get_running_loop().time()
