"""One twin: a role on its lanes, behind SGLang's endpoints."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from prfaas.config import NodeConfig, SecurityMode
from prfaas.errors import PreflightError
from prfaas.records import Role as NodeRole
from prfaas_transport import StatsServer, serve_stats
from prfaas_transport.tls import TlsChannels
from prfaas_twin import about, load
from prfaas_twin.ask import Api, Ask, AskReader
from prfaas_twin.bootstrap import bootstrap_app
from prfaas_twin.decode_role import DecodeRole
from prfaas_twin.faults import admin_app
from prfaas_twin.generation import Generation
from prfaas_twin.http_api import build_app
from prfaas_twin.loop_clock import LoopClock
from prfaas_twin.model import PAGE_TOKENS, TwinModel
from prfaas_twin.prefill_role import PrefillRole
from prfaas_twin.role_switch import RoleSwitch

logger = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_SHUTDOWN_S = 1.0
_BACKLOG = 1024


class TwinInstance:
    """One engine. `start` serves until `close`.

    `crash` is what an injected one does; without it, this twin dies and others of its process live.
    """

    def __init__(self, model: TwinModel, *, crash: Callable[[], None] | None = None) -> None:
        self.model = model
        self.is_stopping = False
        self.counts = load.Counts()
        self._crash = crash or self._die
        self._dying: asyncio.Task[None] | None = None
        self._runners: list[web.AppRunner] = []
        self._loop = asyncio.get_running_loop()
        self.clock = LoopClock(self._loop, dilation=model.section.dilation)
        self._slowness = 1.0
        self._stack = AsyncExitStack()
        self._bootstrap: web.AppRunner | None = None
        self._stats: StatsServer | None = None
        self._role_switch = RoleSwitch(self)
        config = model.config
        assert config.engine is not None
        self.engine = config.engine
        self._reader = AskReader(model.model_id, model.vocabulary, model.section.context_tokens)
        self.role_name = config.node.role
        self.role = self._make_role(config.node.role)

    @property
    def host(self) -> str:
        """Where it listens: with TLS on, its agent alone serves it to other hosts."""
        is_tls = self.model.config.security.mode is SecurityMode.MTLS
        return _LOOPBACK if is_tls else self.model.config.node.host

    async def start(self) -> None:
        """Listen.

        Raises:
            PreflightError: an address cannot be bound.
        """
        config = self.model.config
        try:
            self._stats = serve_stats(stats_path(config), self._transfer_stats)
            admin = admin_app(self)
            await self._serve_unix(admin, admin_path(config))
            if self.model.section.admin_port:
                await self._serve(admin_app(self), _LOOPBACK, self.model.section.admin_port)
            await self._start_bootstrap()
            # Last: whoever sees this port open may use the others.
            await self._serve(build_app(self), self.host, config.node.port)
        except OSError as error:
            await self.close()
            where = f"{self.host}:{config.node.port}"
            raise PreflightError(f"{config.node.name}: cannot listen ({where}): {error}") from None
        logger.info("twin %s serves as %s", config.node.name, self.role_name)

    async def close(self) -> None:
        """Abort what runs and stop listening."""
        self.is_stopping = True
        await self.role.close()
        await self._stop_bootstrap()
        await self._stack.aclose()
        self.clock.close()
        if self._stats is not None:
            await asyncio.to_thread(self._stats.close)

    async def drain(self, grace_s: float) -> None:
        """Take nothing new, and wait for what runs, at most so long."""
        self.is_stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.role.idle()

    # ---- faults --------------------------------------------------------------------------------

    @property
    def slowness(self) -> float:
        """By how much compute is slower than the profile."""
        return self._slowness

    def slow_down(self, factor: float) -> None:
        """Take that many times longer from the next batch or step on."""
        self._slowness = self.role.compute.slowness = factor

    def crash(self) -> None:
        """End at once, as a killed process does: whoever is connected sees his connection end."""
        logger.error("FAULT INJECTION: %s crashes", self.model.config.node.name)
        self._crash()

    def _die(self) -> None:
        """Be dead to the world, but for the other twins of this process."""
        for runner in self._runners:
            server = runner.server
            for connection in server.connections if server is not None else ():
                if connection.transport is not None:
                    connection.transport.abort()
        self._dying = self._loop.create_task(self.close())

    # ---- what the HTTP server asks -------------------------------------------------------------

    def read(self, api: Api, raw: bytes) -> Ask:
        """Return what a body asks for. Raises: BadAskError."""
        return self._reader.read(api, raw)

    def start_generation(self, ask: Ask) -> Generation:
        """Serve a request."""
        generation = Generation(ask, self.model.vocabulary)
        self.counts.requests += 1
        self.role.start(generation)
        return generation

    def drop(self, generation: Generation) -> None:
        """Abort a request whose client went away."""
        self.counts.aborted += 1
        self.role.drop(generation, "Aborted by AbortReq.")

    def abort(self, rid: str, *, everything: bool) -> None:
        """Abort requests by their id."""
        self.role.abort(rid, everything=everything)

    async def tick(self) -> None:
        """Return when the compute has made a turn; never while it hangs."""
        made: asyncio.Future[None] = self._loop.create_future()
        timer = self.clock.at(self.clock.now_s, made.set_result, None)
        try:
            await made
        finally:
            timer.cancel()

    def model_info(self) -> dict[str, Any]:
        """Return what its model is."""
        return about.model_info(self)

    def server_info(self) -> dict[str, Any]:
        """Return its settings."""
        return about.server_info(self)

    def load(self) -> dict[str, Any]:
        """Return what it has to do."""
        return load.load_of(self)

    def flush_cache(self) -> str:
        """Empty the prefix cache; return why not, or nothing."""
        if self.role.requests:
            return "Flush cache failed.\n"
        if isinstance(self.role, PrefillRole):
            self.role.compute.cache.clear()
        return ""

    async def switch_role(self, body: dict[str, Any]) -> dict[str, Any]:
        """Change the role, as SGLang's `/pd_role_switch` does: only when idle."""
        return await self._role_switch.run(body)

    async def take_role(self, role: NodeRole) -> None:
        """Be in another role from now on; what was in progress is aborted."""
        await self.role.close()
        await self._stop_bootstrap()
        self.role_name = role
        self.role = self._make_role(role)
        await self._start_bootstrap()
        logger.info("twin %s is a %s now", self.model.config.node.name, role)

    def _transfer_stats(self) -> dict[str, Any]:
        """Return the transport's counters, what protects them, and the layout: as the plugin."""
        role = self.role
        security: dict[str, Any] = {"mode": str(self.model.config.security.mode)}
        if isinstance(role.transport.channel_factory, TlsChannels):
            security |= role.transport.channel_factory.stats()
        return {**role.node.stats(), "security": security, "layout": self.layout()}

    def layout(self) -> dict[str, Any]:
        """Return what tells of its layout: peers of another one are refused."""
        return {"digest": self.role.layout.digest().hex()[:16], "tp_size": 1}

    # ---- parts ---------------------------------------------------------------------------------

    def _make_role(self, role: NodeRole) -> PrefillRole | DecodeRole:
        made = PrefillRole if role is NodeRole.PREFILL else DecodeRole
        built = made(self.model, self.clock, self._loop)
        built.compute.slowness = self._slowness
        return built

    async def _start_bootstrap(self) -> None:
        if not isinstance(self.role, PrefillRole):
            return
        port = self.model.config.node.port
        app = bootstrap_app(self.role.node.address, page_tokens=PAGE_TOKENS, http_port=port)
        self._bootstrap = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await self._bootstrap.setup()
        site = web.TCPSite(
            self._bootstrap, self.host, self.engine.bootstrap_port, reuse_address=True
        )
        await site.start()

    async def _stop_bootstrap(self) -> None:
        if self._bootstrap is not None:
            await self._bootstrap.cleanup()
            self._bootstrap = None

    async def _serve(self, app: web.Application, host: str, port: int) -> None:
        runner = await self._runner(app)
        await web.TCPSite(runner, host, port, reuse_address=True, backlog=_BACKLOG).start()

    async def _serve_unix(self, app: web.Application, path: Path) -> None:
        runner = await self._runner(app)
        await web.UnixSite(runner, path).start()
        await asyncio.to_thread(path.chmod, 0o600)

    async def _runner(self, app: web.Application) -> web.AppRunner:
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S
        )
        await runner.setup()
        self._runners.append(runner)
        self._stack.push_async_callback(runner.cleanup)
        return runner


def stats_path(config: NodeConfig) -> Path:
    """Return the socket on which a node serves its transfer counters."""
    return Path(config.node.state_dir).absolute() / f"{config.node.name}.stats.sock"


def admin_path(config: NodeConfig) -> Path:
    """Return the socket on which a twin takes injected faults."""
    return Path(config.node.state_dir).absolute() / f"{config.node.name}.twin.sock"


def exit_at_once() -> None:
    """End the process without a word, as a killed one."""
    os._exit(137)
