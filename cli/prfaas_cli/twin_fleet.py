"""Many twins in one process, each listed in etcd under its own lease; and how to reach one."""

import asyncio
import http.client
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from prfaas.config import NodeConfig
from prfaas.errors import ConfigError, StateError
from prfaas.names import check_name
from prfaas.records import NodeRecord
from prfaas_agent.engine import Engine
from prfaas_agent.engine_kinds import kind_of
from prfaas_agent.process import identify
from prfaas_agent.record import node_record
from prfaas_agent.registration import registered
from prfaas_twin.host import DRAIN_S, hosting
from prfaas_twin.instance import TwinInstance

MOST_TWINS = 1000
_TIMEOUT_S = 10.0


def numbered(config: NodeConfig, count: int) -> Iterator[NodeConfig]:
    """Yield a node's configuration so many times: names, ports and bootstrap ports counted up.

    Raises:
        ConfigError: the count is out of range, the ports would meet, or a name is too long.
    """
    if not 1 <= count <= MOST_TWINS:
        raise ConfigError(f"--count {count}: allowed is 1 to {MOST_TWINS}")
    if count == 1:
        yield config
        return
    node, engine = config.node, config.engine
    if engine is None:
        raise ConfigError(f"{node.name}: a twin is a prefill or decode node with [engine]")
    first, second = sorted((node.port, engine.bootstrap_port))
    if second + count > 65536 or (first and second - first < count):
        raise ConfigError(
            f"--count {count}: node.port {node.port} and engine.bootstrap_port"
            f" {engine.bootstrap_port} must be as far apart, and from 65535"
        )
    for number in range(count):
        bootstrap = engine.bootstrap_port + number if engine.bootstrap_port else 0
        name = f"{node.name}-{number}"
        check_name(f"--count {count}: node.name", name)
        yield replace(
            config,
            node=replace(node, name=name, port=node.port + number),
            engine=replace(engine, bootstrap_port=bootstrap),
        )


async def serve_twins(configs: Sequence[NodeConfig], *, register: bool) -> None:
    """Run twins until SIGTERM or SIGINT: list them, and take them off before they end.

    Raises:
        PrfaasError: they cannot start as configured.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with hosting(configs) as twins:
        async with AsyncExitStack() as stack:
            for twin in twins if register else ():
                record = record_of(twin)
                await stack.enter_async_context(registered(twin.model.config, record))
            await stop.wait()
        await asyncio.gather(*(twin.drain(DRAIN_S) for twin in twins))


def record_of(twin: TwinInstance) -> NodeRecord:
    """Return what a twin is registered as: what an agent would say of it."""
    config = twin.model.config
    process = identify(os.getpid())
    assert process is not None
    engine = Engine(process, uuid.uuid4().hex, (), time.time())
    facts = kind_of(config).facts(config)
    return node_record(config, engine, facts, twin.server_info(), layout=twin.layout())


def ask_twin(path: Path, faults: dict[str, Any]) -> dict[str, Any]:
    """Inject faults, or only look, and return what is injected; a crash answers `crashed`.

    Raises:
        StateError: no twin is there, or it refuses.
    """
    connection = _UnixConnection(path)
    try:
        method = "POST" if faults else "GET"
        connection.request(method, "/faults", json.dumps(faults) if faults else None)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except FileNotFoundError:
        raise StateError(f"no twin serves {path}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if faults.get("crash") and not isinstance(error, ConnectionRefusedError):
            return {"crashed": True}
        raise StateError(f"the twin at {path} does not answer: {error}") from None
    finally:
        connection.close()
    if response.status != 200 or not isinstance(answer, dict):
        raise StateError(f"the twin at {path} refuses: {answer}")
    return answer


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(str(self._path))
