"""The port by which prefixes come and go between this host's pool and those of other regions.

`FETCH_PATH` is asked by gateways, `OFFER_PATH` by agents of other hosts; the bytes go over lanes.
With mutual TLS on, both are for nodes of the deployment only.
"""

import asyncio
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
from aiohttp import web

from prfaas.blocks.block_layout import KEY_BYTES
from prfaas.blocks.page_hashes import page_hashes
from prfaas.config import NodeConfig
from prfaas.errors import PreflightError, PrfaasError, ProtocolError
from prfaas.prefix_moves import (
    FETCH_PATH,
    MAX_ANSWER_BYTES,
    MAX_BODY_BYTES,
    OFFER_PATH,
    FetchAnswer,
    FetchRequest,
    OfferRequest,
    Outcome,
)
from prfaas_agent.sglang_args import identity_of
from prfaas_agent.tls_proxy import identity_problem, newest_server_context
from prfaas_coord.guarded_port import GuardedPort, Places

# The transport takes a while to import: not where it is not needed.
if TYPE_CHECKING:
    from prfaas_pool.mover import Lack, Mover
    from prfaas_pool.space import Space
    from prfaas_transport import TransportConfig
    from prfaas_transport.tls_context import TlsContexts

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

MAX_CONNECTIONS, MAX_CONNECTIONS_EACH = 64, 32
MAX_FETCHES, MAX_OFFERS = 4, 16
"""At a time; others are told to come back."""
FIRST_REQUEST_S = 5.0
REQUEST_S = 180.0
"""From a request to the next one; a move gives up before."""
OFFER_S = 15.0
"""How long the other host may take to say what it has."""
_BODY_S = 20.0
_IO_THREADS = 2


class PrefixPort:
    """Serves moves of one host's pool. Use `moving`."""

    def __init__(self, config: NodeConfig, mover: "Mover", tls: "TlsContexts | None") -> None:
        self._config = config
        self._mover = mover
        self._tls = tls
        self._fetches = Places(most=MAX_FETCHES, most_each=MAX_FETCHES)
        self._offers = Places(most=MAX_OFFERS, most_each=MAX_OFFERS)
        self._runner = web.AppRunner(
            self._app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        self._port = GuardedPort(
            self._new_protocol,
            places=Places(most=MAX_CONNECTIONS, most_each=MAX_CONNECTIONS_EACH),
            first_s=FIRST_REQUEST_S,
            tls=None if tls is None else newest_server_context(tls),
        )
        self._session: aiohttp.ClientSession | None = None
        self._going_on: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[int]:
        """Serve while the context lasts; yields the port.

        Raises:
            PreflightError: the address cannot be bound.
        """
        await self._runner.setup()
        try:
            listener = _listen(self._config.node.host, port)
            async with aiohttp.ClientSession() as self._session, self._port.serving(listener):
                yield listener.getsockname()[1]
        finally:
            await self._runner.cleanup()
            for task in list(self._going_on):
                task.cancel()
            await asyncio.gather(*self._going_on, return_exceptions=True)

    def _new_protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return server()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._admit])
        app.router.add_post(FETCH_PATH, self._post_fetch)
        app.router.add_post(OFFER_PATH, self._post_offer)
        return app

    @web.middleware
    async def _admit(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        self._port.extend(request.protocol, REQUEST_S)
        if self._tls is not None and request.transport is not None:
            certificate = request.transport.get_extra_info("peercert")
            problem = identity_problem(certificate, self._config.node.deployment)
            if problem:
                raise web.HTTPForbidden(text=problem)
        try:
            return await handler(request)
        except ProtocolError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        except (PrfaasError, OSError) as error:  # the pool or the lanes are not to be had now
            logger.warning("%s: %s", request.path, error)
            raise web.HTTPServiceUnavailable(text=str(error)) from None

    async def _post_fetch(self, request: web.Request) -> web.Response:
        wanted = FetchRequest.decode(await _body(request))
        with _place(self._fetches) as held:
            # Who asked may go: threads cannot be told to end, so the move goes on in its place.
            answer = await _outlasting(self._fetch(wanted), held, self._going_on)
        logger.info(
            "prefix from %s: %s, %d tokens (%d before), %d bytes in %.2f s %s",
            wanted.source,
            answer.outcome,
            answer.tokens,
            answer.had_tokens,
            answer.num_bytes,
            answer.seconds,
            answer.detail,
        )
        return web.json_response(answer.to_json())

    async def _post_offer(self, request: web.Request) -> web.Response:
        asked = OfferRequest.decode(await _body(request))
        with _place(self._offers) as held:
            offer_now = asyncio.to_thread(
                self._mover.offer,
                asked.room,
                asked.model,
                asked.layout,
                asked.chain,
                have=(asked.kv_pages, asked.usable_pages),
            )
            found = await _outlasting(offer_now, held, self._going_on)
        if found is None:
            return web.json_response({"offer": None})
        offer, (host, port) = found
        return web.json_response({"offer": offer.to_json(), "host": host, "port": port})

    async def _fetch(self, wanted: FetchRequest) -> FetchAnswer:
        began_s = time.monotonic()
        spaces = await asyncio.to_thread(self._mover.spaces, wanted.model)
        if not spaces:
            return FetchAnswer(Outcome.UNKNOWN, detail="no engine has told of this model yet")
        moves = [await self._fetch_space(space, wanted) for space in spaces]
        # An engine resumes from where all of its workers can.
        worst = min(moves, key=lambda move: move.tokens)
        failed = next((move for move in moves if move.outcome is Outcome.FAILED), None)
        moved = any(move.outcome is Outcome.MOVED for move in moves)
        outcome = Outcome.FAILED if failed else Outcome.MOVED if moved else Outcome.NOTHING
        return FetchAnswer(
            outcome,
            tokens=worst.tokens,
            had_tokens=min(move.had_tokens for move in moves),
            num_bytes=sum(move.num_bytes for move in moves),
            seconds=round(time.monotonic() - began_s, 3),
            detail=failed.detail if failed else "",
        )

    async def _fetch_space(self, space: "Space", wanted: FetchRequest) -> FetchAnswer:
        """Bring what one worker lacks."""
        lack = await asyncio.to_thread(self._lacks, space, wanted)
        had_tokens = lack.usable_pages * space.page_tokens
        try:
            pages, num_bytes = await self._take(lack, wanted.source)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, PrfaasError) as error:
            detail = str(error) or type(error).__name__
            return FetchAnswer(Outcome.FAILED, had_tokens, had_tokens, detail=detail)
        if pages is None:
            return FetchAnswer(Outcome.NOTHING, had_tokens, had_tokens)
        if not pages:
            detail = "it did not come whole, or the pool has no room"
            return FetchAnswer(Outcome.FAILED, had_tokens, had_tokens, detail=detail)
        return FetchAnswer(Outcome.MOVED, pages * space.page_tokens, had_tokens, num_bytes)

    def _lacks(self, space: "Space", wanted: FetchRequest) -> "Lack":
        hashes = page_hashes(
            wanted.tokens,
            space.page_tokens,
            cache_salt=wanted.cache_salt,
            extra_key=wanted.extra_key,
        )
        return self._mover.lacks(space, hashes)

    async def _take(self, lack: "Lack", source: str) -> tuple[int | None, int]:
        """Return how many pages are here then, None if there is no more, and the bytes moved."""
        from prfaas_pool.move import Offer
        from prfaas_pool.mover import new_room

        if not lack.chain:
            return None, 0
        room = new_room()
        answer = await self._ask(source, lack, room)
        if answer.get("offer") is None:
            return None, 0
        offer = await asyncio.to_thread(Offer.from_json, answer["offer"])
        if offer.room != room:  # another move's, perhaps
            raise ProtocolError("offer of a prefix: not of the room that was asked for")
        if offer.pages * KEY_BYTES > len(lack.chain):
            raise ProtocolError("offer of a prefix: longer than what was asked for")
        taken = await asyncio.to_thread(self._mover.take, lack, offer, _address(answer))
        return taken.pages, taken.num_bytes

    async def _ask(self, source: str, lack: "Lack", room: int) -> dict[str, Any]:
        """Return the other host's answer. Raises: ClientError, TimeoutError, ValueError."""
        assert self._session is not None
        asked = OfferRequest(
            room,
            lack.space.model,
            lack.space.layout,
            lack.kv_pages,
            lack.usable_pages,
            lack.chain,
        )
        async with self._session.post(
            source + OFFER_PATH,
            data=asked.encode(),
            timeout=aiohttp.ClientTimeout(total=OFFER_S),
            ssl=True if self._tls is None else self._tls.http_client(),
            allow_redirects=False,
        ) as response:
            if response.status != 200:
                text = (await response.content.read(200)).decode(errors="replace")
                raise ProtocolError(f"{source}: HTTP status {response.status}: {text}")
            length = response.content_length
            if length is None or length > MAX_ANSWER_BYTES:
                raise ProtocolError(f"{source}: an answer of {length} bytes")
            raw = await response.read()
        # Of many megabytes: not on the loop that keeps the node's lease.
        return await asyncio.to_thread(_parse_answer, raw, source)


def _parse_answer(raw: bytes, source: str) -> dict[str, Any]:
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        raise ProtocolError(f"{source}: an answer that is not JSON") from None
    if not isinstance(answer, dict):
        raise ProtocolError(f"{source}: not a JSON object")
    return answer


def _address(answer: dict[str, Any]) -> tuple[str, int]:
    """Return where the lanes of an offer are. Raises: ProtocolError."""
    host, port = answer.get("host"), answer.get("port")
    if not isinstance(host, str) or not host or type(port) is not int or not 0 < port < 1 << 16:
        raise ProtocolError(f"offer of a prefix: no address: {host!r:.60}, {port!r:.20}")
    return host, port


@contextmanager
def _place(places: Places) -> Iterator[ExitStack]:
    """Take a place while the context lasts, or for longer by taking what is yielded over.

    Raises: HTTPServiceUnavailable.
    """
    if not places.take(""):
        text = f"{places.most} are under way"
        raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": "1"})
    with ExitStack() as held:
        held.callback(places.give_back, "")
        yield held


async def _outlasting(
    work: Coroutine[Any, Any, _T], held: ExitStack, going_on: set[asyncio.Task[_T]]
) -> _T:
    """Await some work that goes on, and holds what is held, when the one who waits is cancelled."""
    task = asyncio.ensure_future(work)
    going_on.add(task)
    task.add_done_callback(going_on.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            rest = held.pop_all()
            task.add_done_callback(lambda _: rest.close())
        raise


async def _body(request: web.Request) -> bytes:
    """Return a request's body. Raises: HTTPException, if it is none, too long or too slow."""
    length = request.content_length
    if length is None or length > MAX_BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(MAX_BODY_BYTES, length or 0)
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.content.readexactly(length) if length else b""
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except asyncio.IncompleteReadError:
        raise web.HTTPBadRequest from None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        text = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise PreflightError(f"{text}; choose a free pool.port") from None


def _transport(config: NodeConfig) -> "TransportConfig":
    """Return how the lanes of moves are: as those of the node's engine. Raises: ConfigError."""
    from prfaas_pool.move import MOVE_S
    from prfaas_transport import TransportConfig
    from prfaas_transport.security import channel_factory, read_secret

    values = asdict(config.transfer)
    digests = values["digests"]
    for name in ("blank_groups", "digests", "pipelining", "local_backend", "room_timeout_s"):
        del values[name]
    return TransportConfig(
        **values,
        io_threads=_IO_THREADS,
        room_timeout_s=MOVE_S,
        checksums=None if digests == "auto" else digests == "on",
        channel_factory=channel_factory(config.security, identity_of(config)),
        secret=read_secret(config.security),
    )


@asynccontextmanager
async def moving(config: NodeConfig) -> AsyncIterator[int]:
    """Serve moves of the node's pool while the context lasts; yields the port, 0 without a pool.

    Raises:
        ConfigError: the certificate's or the secret's files are not usable.
        PreflightError: the address cannot be bound.
    """
    if config.pool is None:
        yield 0
        return
    from prfaas_pool.mover import Mover
    from prfaas_transport.security import tls_contexts

    mover = Mover(
        config.pool.socket,
        node_id=config.node.name,
        host=config.node.host,
        config=_transport(config),
    )
    try:
        async with PrefixPort(config, mover, tls_contexts(config.security)).serving(
            config.pool.port
        ) as port:
            yield port
    finally:
        await asyncio.to_thread(mover.close)
