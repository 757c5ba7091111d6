"""Change a node's role while its engine runs: drain, switch, offer it again.

```
offered as decode -> draining -> idle -> switched -> offered as prefill
                        |          |        |
                        +----------+--------+-> refused: offered as before
                                            +-> engine broken: it is started again, as a prefill
```
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from prfaas.config import NodeConfig
from prfaas.errors import StateError
from prfaas.records import NodeRecord, Role
from prfaas.role_change import role_change_problem
from prfaas_agent import engine as engines
from prfaas_agent.engine import Engine, EngineFiles
from prfaas_agent.engine_http import EngineHttp, SwitchAnswer
from prfaas_agent.registration import Registered
from prfaas_agent.role_file import keep_role

logger = logging.getLogger(__name__)

#: How long gateways have to hear of the drain; legs that are on their way arrive meanwhile.
GRACE_S = 1.0
_RETRY_S = 0.1


@dataclass(slots=True)
class Serving:
    """An engine that is registered; `broken` ends its life."""

    engine: Engine
    registered: Registered
    broken: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def record(self) -> NodeRecord:
        """What the engine is registered as."""
        assert self.engine.record is not None
        return self.engine.record


@dataclass(frozen=True, slots=True)
class RoleChange:
    """What became of a node; the times are how long it drained and how long the engine switched."""

    name: str
    was: Role
    role: Role
    changed: bool
    drained_s: float = 0.0
    switched_s: float = 0.0


#: Return arguments and record of an engine in its node's new role.
Describe = Callable[[Engine], Awaitable[tuple[Sequence[str], NodeRecord]]]


@dataclass(frozen=True, slots=True)
class RoleSwitch:
    """One change of role. `config` is the node's in the new role."""

    config: NodeConfig
    files: EngineFiles
    http: EngineHttp
    serving: Serving
    describe: Describe

    @property
    def role(self) -> Role:
        """The new role."""
        return self.config.node.role

    async def run(self, *, force: bool, timeout_s: float) -> RoleChange:
        """Change the role, unless the node has it already.

        Raises:
            StateError: refused, and the node serves on as before; or the engine broke.
        """
        record = self.serving.record
        if record.role is self.role:
            return RoleChange(record.name, record.role, self.role, changed=False)
        assert self.config.engine is not None
        if not self.config.engine.role_switch:
            raise StateError(
                f"{record.name} cannot change its role: set engine.role_switch and decode_cache to"
                " true in its configuration and start it again"
            )
        await self._require_others(record, force=force)
        began_s = time.monotonic()
        try:
            await self.serving.registered.publish(replace(record, draining=True))
            await self._require_others(record, force=force)
            await asyncio.sleep(GRACE_S)
            drained_s, switched_s = await self._switch_when_idle(began_s + timeout_s)
        except StateError:
            if not self.serving.broken.is_set():
                await self._offer_again(record)
            raise
        await self._offer_in_new_role()
        return RoleChange(
            record.name,
            record.role,
            self.role,
            changed=True,
            drained_s=round(drained_s - began_s, 3),
            switched_s=round(switched_s - drained_s, 3),
        )

    async def _require_others(self, record: NodeRecord, *, force: bool) -> None:
        """Raises: StateError if the node's region would lose the last node of a role."""
        if force:
            return
        nodes = await self.serving.registered.nodes()
        problem = role_change_problem(record, self.role, nodes)
        if problem:
            raise StateError(f"{problem}; start another one first, or give --force")

    async def _switch_when_idle(self, deadline_s: float) -> tuple[float, float]:
        """Switch as soon as the engine has nothing to do; return when it was idle, and when done.

        Raises:
            StateError: it did not become idle, refused, or broke.
        """
        assert self.config.engine is not None
        memory_gb = self.config.engine.decode_cuda_graph_memory_gb
        was = self.serving.record.role
        # Before the switch: whoever finds an engine whose role is in doubt starts it as this.
        keep_role(self.files, self.role)
        while True:
            asked_s = time.monotonic()
            answer = await self.http.switch_role(self.role, decode_cuda_graph_memory_gb=memory_gb)
            if answer.done:
                return asked_s, time.monotonic()
            if not answer.is_whole:
                self.serving.broken.set()
                raise StateError(f"the engine broke and starts again as {self.role}: {_of(answer)}")
            if not answer.is_busy or asked_s >= deadline_s:
                keep_role(self.files, was)
                reason = "it is still busy" if answer.is_busy else _of(answer)
                raise StateError(f"{self.serving.record.name} stays {was}: {reason}")
            await asyncio.sleep(_RETRY_S)

    async def _offer_again(self, record: NodeRecord) -> None:
        try:
            await self.serving.registered.publish(record)
        except StateError as error:
            logger.warning("offered again once etcd is back: %s", error)

    async def _offer_in_new_role(self) -> None:
        """Register the engine as what it is now, a new session: nothing known of it holds."""
        engine = replace(
            self.serving.engine, session=uuid.uuid4().hex, started_at_s=time.time(), record=None
        )
        arguments, record = await self.describe(engine)
        engine = replace(engine, arguments=tuple(arguments), record=record)
        engines.write(self.files, engine)
        self.serving.engine = engine
        await self._offer_again(record)
        logger.info("serving as %s, session %s", record.role, record.session)


def _of(answer: SwitchAnswer) -> str:
    return " ".join(answer.message.split())[:300]
