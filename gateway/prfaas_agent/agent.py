"""The node agent's life: start or adopt the engine, register it, watch it, start it again."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from enum import Enum, auto
from typing import Any, NoReturn

from prfaas.config import NodeConfig
from prfaas.errors import PrfaasError, StateError
from prfaas.records import NodeRecord, Role
from prfaas_agent import engine as engines
from prfaas_agent import process as processes
from prfaas_agent.cache_relay import relayed
from prfaas_agent.checks import node_problems, refuse, socket_path_problem
from prfaas_agent.control import control
from prfaas_agent.drain import Drained, drain, undrain
from prfaas_agent.engine import Engine, EngineFiles, Launch
from prfaas_agent.engine_http import EngineHttp
from prfaas_agent.engine_kinds import kind_of
from prfaas_agent.engine_stats import EngineStats
from prfaas_agent.first_of import first_of
from prfaas_agent.observation_port import observed
from prfaas_agent.prefix_port import moving
from prfaas_agent.record import node_record, own_url, with_ports
from prfaas_agent.registration import Registered
from prfaas_agent.role_file import with_kept_role, with_role
from prfaas_agent.role_switch import RoleChange, RoleSwitch, Serving
from prfaas_agent.security_checks import security_problems
from prfaas_agent.sglang_args import events_socket, stats_socket
from prfaas_agent.shared_memory import shared_files
from prfaas_agent.state_file import write_json
from prfaas_agent.tls_proxy import proxies
from prfaas_coord.backoff import Backoff

logger = logging.getLogger(__name__)

FORK_SERVER_WAIT_S = 180.0
_LAUNCH_RETRY_S = 0.5
_HEALTH_RETRY_S = 0.5
_PROGRESS_EVERY_S = 5.0
_LAYOUT_WAIT_S = 2.0
WISH_LOOK_S = 1.0
WISH_RETRY_S = 5.0
#: How long a node may drain for a role that the plan wants.
WISH_DRAIN_S = 600.0
_LAYOUT_LOOK_S = 0.2

#: Registers a record for as long as the context is open; never fails, whatever etcd does.
Register = Callable[[NodeRecord], AbstractAsyncContextManager[Registered]]


class _Outcome(Enum):
    """How one wait or one life of the engine ended."""

    HEALTHY = auto()
    ENDED = auto()
    TOO_SLOW = auto()
    STOPPED = auto()


async def run_agent(
    config: NodeConfig, *, register: Register, fork_launch: Launch | None = None
) -> None:
    """Run a prefill or decode node until SIGTERM or SIGINT.

    `fork_launch` starts an engine through a fork server; where it is None or keeps failing, the
    engine starts cold.

    Raises:
        PrfaasError: the node cannot start on this machine as configured.
    """
    agent = Agent(config, register=register, fork_launch=fork_launch)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    await agent.run()


class Agent:
    """One node. The single writer of its engine's file and of its own."""

    def __init__(
        self, config: NodeConfig, *, register: Register, fork_launch: Launch | None = None
    ) -> None:
        assert config.engine is not None
        self._files = EngineFiles(config)
        self._config = with_kept_role(config, self._files)
        self._section = config.engine
        self._kind = kind_of(config)
        self._register = register
        self._fork_launch = fork_launch
        self._serving: Serving | None = None
        self._changing_role = asyncio.Lock()
        self._drained: Serving | None = None
        self._http = EngineHttp(own_url(config))
        self._stats = EngineStats(stats_socket(config), node=config.node.name)
        self._stopping = asyncio.Event()
        self._starts = 0

    def stop(self) -> None:
        """Ask for the end: deregister, stop the engine, return from `run`."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`.

        Raises:
            PrfaasError: the node cannot start on this machine as configured.
        """
        self._files.prepare()
        running = engines.find_running(self._files)
        if running is None or running.record is None:
            # An engine that served is adopted at once: until then, nobody refreshes its lease.
            self._check()
        os.environ.update(self._kind.environment(self._config))
        self._facts = self._kind.facts(self._config)
        async with (
            self._http,
            proxies(self._config),
            control(self._files.control, self._change_role, self._drain),
            relayed(self._config) as cache,
            observed(self._config, self._stats, cache) as port,
            moving(self._config) as pool_port,
        ):
            node = replace(self._config.node, agent_port=port)
            pool = self._config.pool and replace(self._config.pool, port=pool_port)
            self._config = replace(self._config, node=node, pool=pool)
            await self._keep_running()
        self._report("stopped")

    async def _change_role(self, role: Role, force: bool, timeout_s: float) -> RoleChange:
        """Change the node's role; see `RoleSwitch`. Raises: StateError."""
        async with self._one_change() as serving:
            if serving is self._drained:
                raise StateError(f"{self._config.node.name} is drained; undrain it first")
            config = with_role(self._config, role)

            async def describe(engine: Engine) -> tuple[list[str], NodeRecord]:
                self._config = config
                info = await self._http.server_info()
                layout = await self._layout()
                record = node_record(config, engine, self._facts, info, layout=layout)
                return self._kind.arguments(config, self._facts), record

            switch = RoleSwitch(config, self._files, self._http, serving, describe)
            try:
                return await switch.run(force=force, timeout_s=timeout_s)
            finally:
                if serving.broken.is_set():
                    self._config = config

    async def _drain(self, draining: bool, force: bool, timeout_s: float) -> Drained:
        """Drain the node, or offer it again; see `drain`. Raises: StateError."""
        async with self._one_change() as serving:
            was = serving is self._drained
            if not draining:
                self._drained = None
                return await undrain(serving, was_draining=was)
            drained = await drain(
                serving, self._http, was_draining=was, force=force, timeout_s=timeout_s
            )
            self._drained = serving
            return drained

    @asynccontextmanager
    async def _one_change(self) -> AsyncIterator[Serving]:
        """Let only one change of the node go on. Raises: StateError: another does, or no node."""
        if self._changing_role.locked():
            raise StateError(f"{self._config.node.name} is changing its role already, or drains")
        async with self._changing_role:
            if self._serving is None:
                raise StateError(f"{self._config.node.name} is not serving; try again when it is")
            yield self._serving

    def _check(self) -> None:
        running = engines.find_running(self._files) is not None
        strays = engines.end_strays(self._files)
        if strays:
            logger.warning("ended %d processes of an engine that no file names", strays)
        problems = node_problems(self._config, ports=not running)
        problems += security_problems(self._config)
        paths = (stats_socket(self._config), events_socket(self._config), self._files.control)
        problems += [problem for path in paths if (problem := socket_path_problem(path))]
        refuse(problems, what=self._config.node.name)

    async def _keep_running(self) -> None:
        backoff = Backoff()
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                outcome = await self._one_life()
            except PrfaasError as error:
                outcome = _Outcome.ENDED
                self._report("failed", detail=str(error))
            engines.reap()
            if outcome is not _Outcome.STOPPED and not self._stopping.is_set():
                wait_s = backoff.next_s(ran_s=time.monotonic() - began_s)
                logger.warning("engine %s; next start in %.1f s", outcome.name.lower(), wait_s)
                await self._sleep(wait_s)

    async def _one_life(self) -> _Outcome:
        engine = await self._adopt() or await self._start()
        if engine is None:
            return _Outcome.STOPPED
        outcome = _Outcome.HEALTHY if engine.record else await self._wait_healthy(engine)
        if outcome is _Outcome.HEALTHY:
            outcome = await self._serve(engine)
        else:
            self._report(outcome.name.lower(), engine, detail=f"see {self._files.log}")
        grace_s = engines.BROKEN_GRACE_S if outcome is _Outcome.ENDED else engines.STOP_GRACE_S
        await asyncio.to_thread(engines.end, engine, self._files, grace_s=grace_s)
        return outcome

    async def _adopt(self) -> Engine | None:
        engine = engines.find_running(self._files)
        if engine is None:
            return None
        if engine.arguments != tuple(self._arguments()):
            self._check()
            logger.warning("the running engine has other arguments; stopping it")
            await asyncio.to_thread(engines.end, engine, self._files)
            return None
        logger.info("adopted the running engine, process %d", engine.process.pid)
        return engine

    def _arguments(self) -> list[str]:
        return self._kind.arguments(self._config, self._facts)

    async def _start(self) -> Engine | None:
        self._starts += 1
        self._report("starting")
        engine = await self._start_by_fork() if self._fork_launch else None
        if engine is None and not self._stopping.is_set():
            self._report("starting", detail="cold start")
            launch = self._kind.cold_launch(self._config)
            engine = engines.start(self._files, launch, arguments=self._arguments())
        if engine is not None:
            logger.info("engine started, process %d", engine.process.pid)
        return engine

    async def _start_by_fork(self) -> Engine | None:
        """Start through the fork server; wait for one that is still loading."""
        assert self._fork_launch is not None
        deadline_s = time.monotonic() + FORK_SERVER_WAIT_S
        while not self._stopping.is_set():
            try:
                return await asyncio.to_thread(
                    engines.start, self._files, self._fork_launch, arguments=self._arguments()
                )
            except PrfaasError as error:
                if time.monotonic() >= deadline_s:
                    logger.warning("starting cold: %s", error)
                    return None
                self._report("waiting for the fork server", detail=str(error))
            await self._sleep(_LAUNCH_RETRY_S)
        return None

    async def _wait_healthy(self, engine: Engine) -> _Outcome:
        """Wait for the first of: healthy, ended, stopped, out of time."""
        self._report("loading the model", engine)
        first = await first_of(
            self._poll_health(),
            processes.wait_exit(engine.process),
            self._stopping.wait(),
            timeout_s=self._section.start_timeout_s,
        )
        outcomes = (_Outcome.HEALTHY, _Outcome.ENDED, _Outcome.STOPPED)
        return _Outcome.TOO_SLOW if first is None else outcomes[first]

    async def _poll_health(self) -> None:
        began_s = said_s = time.monotonic()
        while not await self._http.is_healthy():
            now_s = time.monotonic()
            if now_s - said_s >= _PROGRESS_EVERY_S:
                said_s = now_s
                logger.info("engine not healthy yet (%.0f s)", now_s - began_s)
            await asyncio.sleep(_HEALTH_RETRY_S)

    async def _serve(self, engine: Engine) -> _Outcome:
        """Be registered until the engine or a worker of it ends, or the agent shall stop.

        SGLang's main process lives on for seconds after a worker of it was killed.
        """
        if engine.record is None:
            engine = await self._with_record(engine)
        assert engine.record is not None
        # An adopted engine was registered by another agent, on other ports.
        record = with_ports(engine.record, self._config)
        engine = replace(engine, record=record)
        async with self._register(record) as registered:
            self._serving = serving = Serving(engine, registered)
            self._report("serving", engine)
            logger.info("serving as %s, session %s", record.name, record.session)
            parts = (engine.process, *engine.workers)
            try:
                await first_of(
                    *map(processes.wait_exit, parts),
                    serving.broken.wait(),
                    self._stopping.wait(),
                    self._follow_wishes(serving),
                )
            finally:
                self._serving = None
        if self._stopping.is_set():
            return _Outcome.STOPPED
        logger.error("the engine ended; deregistered; see %s", self._files.log)
        self._report("ended", detail=f"the engine ended; see {self._files.log}")
        return _Outcome.ENDED

    async def _follow_wishes(self, serving: Serving) -> NoReturn:
        """Take the role that the plan wants; a refusal is no end of the wish."""
        while True:
            await asyncio.sleep(WISH_LOOK_S)
            role = await serving.registered.wished_role()
            if role is None or role in (Role.GATEWAY, serving.record.role):
                continue
            try:
                await self._change_role(role, False, WISH_DRAIN_S)
            except (PrfaasError, OSError) as error:
                logger.warning("the plan wants %s: %s", role, error)
                await asyncio.sleep(WISH_RETRY_S)

    async def _with_record(self, engine: Engine) -> Engine:
        """Ask the engine what it is, and keep the answer for the agent that may adopt it."""
        info = await self._http.server_info()
        layout = await self._layout()
        record = node_record(self._config, engine, self._facts, info, layout=layout)
        shared = tuple(sorted(shared_files(processes.session_members(engine.process))))
        workers = engines.find_workers(engine)
        engine = replace(engine, record=record, shared_files=shared, workers=workers)
        engines.write(self._files, engine)
        return engine

    async def _layout(self) -> Mapping[str, Any]:
        """Return what the engine's plugin says of its layout, empty if it does not tell in time."""
        deadline_s = time.monotonic() + _LAYOUT_WAIT_S
        while not self._stats.is_fresh and time.monotonic() < deadline_s:
            await self._stats.wait_changed(_LAYOUT_LOOK_S)
        layout = self._stats.values.get("layout")
        return layout if isinstance(layout, dict) else {}

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _report(self, phase: str, engine: Engine | None = None, *, detail: str = "") -> None:
        """Write the agent's file, for deploy and status to read; on a full disk it stays as it was:
        what serves matters more than what is told."""
        state = {
            "phase": phase,
            "detail": detail,
            "since_s": time.time(),
            "engine_starts": self._starts,
            "engine_pid": engine.process.pid if engine else 0,
        }
        try:
            write_json(self._files.agent, state)
        except OSError as error:
            logger.warning("%s: %s; not told: %s", self._files.agent, error.strerror, phase)
