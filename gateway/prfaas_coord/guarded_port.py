"""A listening port that no single address can fill: places and deadlines of its connections."""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

logger = logging.getLogger(__name__)

_AFTER_ACCEPT_ERROR_S = 0.1
_BETWEEN_WARNINGS_S = 10.0


class Places:
    """So many in all, and so many of each address.

    >>> places = Places(most=3, most_each=2)
    >>> [places.take("a"), places.take("a"), places.take("a"), places.take("b"), places.take("c")]
    [True, True, False, True, False]
    """

    def __init__(self, *, most: int, most_each: int) -> None:
        self.most = most
        self.most_each = most_each
        self._taken: Counter[str] = Counter()
        self._total = 0

    def like(self) -> "Places":
        """Return as many places, all free."""
        return Places(most=self.most, most_each=self.most_each)

    def take(self, address: str) -> bool:
        """Take a place; return False where none is left for the address."""
        if self._total >= self.most or self._taken[address] >= self.most_each:
            return False
        self._taken[address] += 1
        self._total += 1
        return True

    def give_back(self, address: str) -> None:
        """Give back a place that was taken."""
        self._taken[address] -= 1
        self._total -= 1
        if not self._taken[address]:
            del self._taken[address]


class GuardedPort:
    """Accepts connections for protocols of `new_protocol`, inside TLS with `tls`.

    A connection ends `first_s` after it was accepted, a handshake included, unless `extend` gives
    it longer. `handshakes` are the places of those that have not finished their handshake.
    """

    def __init__(
        self,
        new_protocol: Callable[[], asyncio.Protocol],
        *,
        places: Places,
        first_s: float,
        tls: ssl.SSLContext | None,
        handshakes: Places | None = None,
    ) -> None:
        self._new_protocol = new_protocol
        self._places = places
        self._handshakes = handshakes or places.like()
        self._first_s = first_s
        self._tls = tls
        self._deadlines: dict[asyncio.BaseProtocol, asyncio.Timeout] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._warned_s = float("-inf")

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Accept from a listening socket while the context lasts; then close it and all others."""
        listener.setblocking(False)
        self._accepting = self._start(self._accept(listener))
        try:
            yield
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            listener.close()

    async def accept_no_more(self) -> None:
        """Take no new connections; those that there are go on."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)

    def extend(self, protocol: asyncio.BaseProtocol, seconds: float | None) -> None:
        """Let a connection last so long from now on; None: until one side ends it."""
        deadline = self._deadlines.get(protocol)
        if deadline is not None and not deadline.expired():
            now_s = asyncio.get_running_loop().time()
            deadline.reschedule(None if seconds is None else now_s + seconds)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, (address, *_) = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor left, or gone again
                self._warn(f"cannot accept a connection: {error.strerror or error}")
                await asyncio.sleep(_AFTER_ACCEPT_ERROR_S)
                continue
            if self._places.take(address):
                task = self._start(self._serve(accepted, address))
                task.add_done_callback(partial(self._end, address, accepted))
            else:
                accepted.close()
                self._warn(f"connection from {address} refused: it, or all, have too many")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end(self, address: str, accepted: socket.socket, _task: asyncio.Task[None]) -> None:
        """Tidy up even where the task never began."""
        accepted.close()
        self._places.give_back(address)

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        """Return when the connection is over, however it ends."""
        inner = self._new_protocol()
        connection = _Connection(inner)
        try:
            with suppress(OSError):  # a handshake that failed, and TimeoutError
                async with asyncio.timeout(self._first_s) as deadline:
                    self._deadlines[inner] = deadline
                    if await self._connect(connection, accepted, address):
                        await connection.ended.wait()
        finally:
            self._deadlines.pop(inner, None)
            connection.abort()

    async def _connect(
        self, connection: "_Connection", accepted: socket.socket, address: str
    ) -> bool:
        """Return once the connection is made, inside TLS where it is on; False: refused.

        Raises:
            OSError: the handshake failed.
        """
        if self._tls is not None and not self._handshakes.take(address):
            self._warn(f"handshake of {address} refused: it, or all, have too many under way")
            return False
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls
            )
        finally:
            if self._tls is not None:
                self._handshakes.give_back(address)
        return True

    def _warn(self, text: str) -> None:
        """Log, but not as often as a stranger likes."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._warned_s >= _BETWEEN_WARNINGS_S:
            self._warned_s = now_s
            logger.warning("%s", text)


class _Connection(asyncio.Protocol):
    """Passes everything on to another protocol, and tells the end."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self.ended = asyncio.Event()
        self._inner = inner
        self._transport: asyncio.Transport | None = None

    def abort(self) -> None:
        """End it at once, whatever is unsent."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)
        self.ended.set()

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
