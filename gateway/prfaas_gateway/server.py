"""Start a gateway, serve until told to stop, stop gracefully."""

import asyncio
import logging
import signal
import socket
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from prfaas.config import GatewaySection, NodeConfig, SecurityMode
from prfaas.errors import ConfigError, PreflightError
from prfaas.records import NodeRecord, Role
from prfaas_coord import Election, EtcdClient, Membership, MembershipView
from prfaas_coord.companion import Companion
from prfaas_gateway.access import Access
from prfaas_gateway.app import build_app
from prfaas_gateway.cache_streams import CacheStreams
from prfaas_gateway.case_file import read_case
from prfaas_gateway.cors import Cors
from prfaas_gateway.dispatch import Dispatcher
from prfaas_gateway.fleet import Fleet
from prfaas_gateway.gateway import Gateway
from prfaas_gateway.key_book import KeyBook
from prfaas_gateway.leg import LegRunner
from prfaas_gateway.leg_tasks import LegTasks
from prfaas_gateway.link_watch import watching
from prfaas_gateway.metrics import Metrics
from prfaas_gateway.node_streams import following
from prfaas_gateway.peer_demand import PeerDemand
from prfaas_gateway.prefix_moves import PrefixMoves
from prfaas_gateway.public_port import PublicPort
from prfaas_gateway.scheduler import Scheduler
from prfaas_gateway.signal_streams import SignalStreams
from prfaas_gateway.tokenizer import TokenizerShelf

logger = logging.getLogger(__name__)

FIRST_VIEW_S = 2.0
"""How long to wait for the nodes before the first request."""
_BACKLOG = 1024

_ENGINE_KEEPALIVE_S = 2.0
"""Below the 5 s of SGLang's server: a connection that it is about to close is never reused."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop where it is installed, for `asyncio.Runner(loop_factory=...)`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def run_gateway(config: NodeConfig) -> None:
    """Serve until SIGTERM or SIGINT, then finish running requests for up to `gateway.drain_s`.

    Raises:
        ConfigError: the tokenizer of `gateway.model_path`, or a file of `[api]`, is not usable.
        PreflightError: the address cannot be bound.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with serving(config):
            await stop.wait()
            logger.info("stopping")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@asynccontextmanager
async def serving(config: NodeConfig) -> AsyncIterator[str]:
    """Serve while the context lasts; yields the base URL.

    Raises:
        ConfigError: the tokenizer of `gateway.model_path`, or a file of `[api]`, is not usable.
        PreflightError: the address cannot be bound.
    """
    section = config.gateway
    if section is None:
        raise ConfigError("a gateway node needs a section [gateway]")
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(_listen(config, section))
        url = _url(config, listener)
        await stack.enter_async_context(_running(config, section, listener, url))
        logger.info("gateway %s serves %s", config.node.name, url)
        yield url


@asynccontextmanager
async def _running(
    config: NodeConfig, section: GatewaySection, listener: socket.socket, url: str
) -> AsyncIterator[None]:
    record = _own_record(config, url)
    access = Access(_key_book(config), session=record.session)
    async with (
        EtcdClient.of(config) as etcd,
        MembershipView(etcd, config.node.deployment) as view,
        Membership(etcd, config.node.deployment).register(record, ttl_s=config.etcd.lease_ttl_s),
        _gateway(config, section, etcd, view, access) as gateway,
        _first_view(view),
        PublicPort(build_app(gateway), config.api, drain_s=section.drain_s).serving(listener),
    ):
        yield


def _key_book(config: NodeConfig) -> KeyBook | None:
    return KeyBook(Path(config.api.keys_file)) if config.api.keys_file else None


@asynccontextmanager
async def _first_view(view: MembershipView) -> AsyncIterator[None]:
    """Wait a little for the nodes: until then every request would be refused for want of them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_VIEW_S):
            while not view.status.synced:  # noqa: ASYNC110 - once, at start
                await asyncio.sleep(0.02)
    yield


@asynccontextmanager
async def _gateway(
    config: NodeConfig,
    section: GatewaySection,
    etcd: EtcdClient,
    view: MembershipView,
    access: Access,
) -> AsyncIterator[Gateway]:
    tokenizers = TokenizerShelf(section.model_path)
    await asyncio.to_thread(tokenizers.preload)
    fleet = Fleet(
        view,
        region=config.node.region,
        default_threshold_tokens=section.threshold_tokens,
        absorb_tokens=section.absorb_tokens,
    )
    metrics = Metrics()
    async with _engine_session(section) as session, LegTasks() as tasks:
        tls = _tls(config)
        moves = PrefixMoves(fleet, session, tls, tasks)
        metrics.add_moves(moves.log)
        dispatcher = Dispatcher(fleet, LegRunner(session, fleet, tls), metrics, tasks, moves)
        async with (
            following(SignalStreams(view, fleet.signals, session, tls)),
            following(CacheStreams(view, fleet.caches, session, tls)),
            watching(fleet.watch, lambda: view.nodes),
            Election(etcd, config.node.deployment, config.node.name) as election,
            _scheduling(
                config, section, etcd, fleet, election, PeerDemand(session, fleet, config.node.name)
            ) as scheduler,
        ):
            yield Gateway(
                section=section,
                api=config.api,
                access=access,
                cors=Cors(config.api.cors_origins),
                deployment=config.node.deployment,
                etcd=etcd,
                fleet=fleet,
                dispatcher=dispatcher,
                metrics=metrics,
                tokenizers=tokenizers,
                scheduler=scheduler,
            )


@asynccontextmanager
async def _scheduling(
    config: NodeConfig,
    section: GatewaySection,
    etcd: EtcdClient,
    fleet: Fleet,
    election: Election,
    peers: PeerDemand,
) -> AsyncIterator[Scheduler]:
    """Run the long-term scheduler; it acts while this gateway leads."""
    case = read_case(section.case, region=config.node.region) if section.case else None
    scheduler = Scheduler(
        etcd,
        election,
        fleet,
        deployment=config.node.deployment,
        name=config.node.name,
        case=case,
        peers=peers,
    )
    companion = Companion()
    await companion.start(scheduler.run(), name="scheduler")
    try:
        yield scheduler
    finally:
        await companion.stop(None, None)


def _tls(config: NodeConfig) -> Callable[[], ssl.SSLContext] | None:
    """Return what gives the newest context for engines; None without TLS."""
    if config.security.mode is not SecurityMode.MTLS:
        return None
    from prfaas_transport.security import tls_files
    from prfaas_transport.tls_context import TlsContexts

    return TlsContexts(tls_files(config.security)).http_client


def _engine_session(section: GatewaySection) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_ENGINE_KEEPALIVE_S)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=section.connect_timeout_s)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
        read_bufsize=1 << 18,
    )


def _listen(config: NodeConfig, section: GatewaySection) -> socket.socket:
    if section.listen_fd >= 0:
        try:
            return socket.socket(fileno=section.listen_fd)
        except OSError as error:
            raise PreflightError(
                f"gateway.listen_fd = {section.listen_fd}: not an open socket: {error}"
            ) from None
    address = (config.node.host, config.node.port)
    try:
        return socket.create_server(address, family=_family(config.node.host), backlog=_BACKLOG)
    except OSError as error:
        raise PreflightError(
            f"cannot listen on {config.node.host}:{config.node.port}: {error}"
        ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _url(config: NodeConfig, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    host = f"[{config.node.host}]" if ":" in config.node.host else config.node.host
    return f"{'https' if config.api.cert else 'http'}://{host}:{port}"


def _own_record(config: NodeConfig, url: str) -> NodeRecord:
    return NodeRecord(
        name=config.node.name,
        role=Role.GATEWAY,
        region=config.node.region,
        url=url,
        session=uuid.uuid4().hex,
        started_at_s=time.time(),
    )
