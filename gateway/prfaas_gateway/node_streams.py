"""Streams from the agents of nodes: one each, for as long as the node is registered."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import aiohttp

from prfaas.records import NodeRecord
from prfaas_coord.again import again_and_again
from prfaas_coord.backoff import Backoff
from prfaas_coord.companion import Companion
from prfaas_gateway.fleet import View

LOOK_S = 0.2
_BACKOFF_FIRST_S = 0.1
_CONNECT_TIMEOUT_S = 2.0

Tls = Callable[[], ssl.SSLContext]


class NodeStreams(ABC):
    """Follows the nodes that `_is_followed` takes. `tls` gives the context for agents, None: none.

    A stream that says nothing for `silence_s` is broken; broken ones are tried again, after
    `backoff_s` at most. A process anew under a node's name gets a new stream.
    """

    what: str
    silence_s: float
    backoff_s: float

    def __init__(self, view: View, session: aiohttp.ClientSession, tls: Tls | None) -> None:
        self._view = view
        self._session = session
        self._tls = tls
        self._streams: dict[tuple[str, str, str], asyncio.Task[None]] = {}

    @abstractmethod
    def _is_followed(self, node: NodeRecord) -> bool:
        """Say whether the node's agent has such a stream."""

    @abstractmethod
    def _retain(self, names: Iterable[str]) -> None:
        """Forget what was heard of all other nodes."""

    @abstractmethod
    async def _listen(self, node: NodeRecord) -> None:
        """Take every line until the stream ends. Raises: whatever went wrong."""

    async def run(self) -> None:
        """Start and end streams as nodes come and go, until cancelled."""
        known = None
        async with asyncio.TaskGroup() as group:
            while True:
                nodes = self._view.nodes
                if nodes is not known:
                    known = nodes
                    self._adjust(group, [n for n in nodes.values() if self._is_followed(n)])
                await asyncio.sleep(LOOK_S)

    def _adjust(self, group: asyncio.TaskGroup, nodes: list[NodeRecord]) -> None:
        wanted = {(node.name, node.agent_url, node.session): node for node in nodes}
        for target in [target for target in self._streams if target not in wanted]:
            self._streams.pop(target).cancel()
        self._retain(name for name, _, _ in wanted)
        for target in wanted.keys() - self._streams.keys():
            self._streams[target] = group.create_task(self._follow(wanted[target]))

    async def _follow(self, node: NodeRecord) -> None:
        backoff = Backoff(_BACKOFF_FIRST_S, self.backoff_s, reset_after_s=self.silence_s)
        await again_and_again(
            lambda: self._listen(node), what=f"{self.what} of {node.name}", backoff=backoff
        )

    @asynccontextmanager
    async def _opened(
        self, url: str, *, params: dict[str, str] | None = None, longest_line_bytes: int = 1 << 16
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Ask for a stream. Raises: ClientError, TimeoutError, ValueError."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=self.silence_s
        )
        async with self._session.get(
            url,
            params=params,
            timeout=timeout,
            ssl=True if self._tls is None else self._tls(),
            allow_redirects=False,
            read_bufsize=longest_line_bytes,
        ) as response:
            if response.status != 200:
                raise ValueError(f"HTTP status {response.status}")
            yield response.content


@asynccontextmanager
async def following(streams: NodeStreams) -> AsyncIterator[None]:
    """Follow while the context lasts."""
    companion = Companion()
    await companion.start(streams.run(), name=streams.what)
    try:
        yield
    finally:
        await companion.stop(None, None)
