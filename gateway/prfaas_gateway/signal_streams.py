"""Follow the signals of all engine nodes' agents."""

import asyncio
from collections.abc import Iterable

import aiohttp

from prfaas.records import NodeRecord, Role
from prfaas.transfer.node_signals import NodeSignals
from prfaas_gateway.fleet import View
from prfaas_gateway.node_streams import NodeStreams, Tls
from prfaas_gateway.signal_book import STALE_S, SignalBook

#: A node that talks too much is not listened to more often than this.
_LEAST_GAP_S = 0.05


class SignalStreams(NodeStreams):
    """Writes what it hears into a `SignalBook`."""

    what = "signals"
    silence_s = STALE_S
    backoff_s = 2.0

    def __init__(
        self, view: View, book: SignalBook, session: aiohttp.ClientSession, tls: Tls | None
    ) -> None:
        super().__init__(view, session, tls)
        self._book = book

    def _is_followed(self, node: NodeRecord) -> bool:
        return node.role is not Role.GATEWAY and bool(node.agent_url)

    def _retain(self, names: Iterable[str]) -> None:
        self._book.retain(names)

    async def _listen(self, node: NodeRecord) -> None:
        async with self._opened(f"{node.agent_url}/signals") as stream:
            while line := await stream.readline():
                now_s = asyncio.get_running_loop().time()
                self._book.note(node.name, NodeSignals.from_line(line), now_s)
                await asyncio.sleep(_LEAST_GAP_S)
