"""The pool service's Unix socket."""

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import signal
import socket
from pathlib import Path

from prfaas.errors import PreflightError, ProtocolError
from prfaas_pool.config import PoolConfig
from prfaas_pool.message import LENGTHS, check_lengths, decode_fields, encode
from prfaas_pool.service import PoolService

log = logging.getLogger("prfaas.pool")

MAX_CLIENTS = 256
_EXPIRE_EVERY_S = 1.0
#: Entries leave no cycles behind, and looking through millions for some takes a tenth of a second.
_GC_THRESHOLDS = (100_000, 50, 1000)
#: A client that sent half a message for so long, or does not read its answer, is gone.
_STALL_S = 30.0


async def serve(config: PoolConfig) -> None:
    """Run a pool service until SIGTERM or SIGINT. Prints `ready` once clients can connect.

    Raises:
        PreflightError: file, memory or socket cannot be had.
        StateError: another service has the arena.
    """
    gc.set_threshold(*_GC_THRESHOLDS)
    service = PoolService(config)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    connections = Connections(service)
    # The arena's lock is ours, so no other service listens on a socket that is there.
    server = await asyncio.start_unix_server(connections.serve, sock=_bind(config.socket))
    log.info("restored %(restored)d entries, lost %(lost)d", service.counts)
    print("ready", flush=True)  # noqa: T201 - whoever started us waits for it
    try:
        async with server:
            while not stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EXPIRE_EVERY_S):
                        await stopping.wait()
                service.expire()
            connections.close()  # the server waits for them
    finally:
        config.socket.unlink(missing_ok=True)
        service.close()


def _bind(path: Path) -> socket.socket:
    """Return a listening socket that only this user may use."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        raise PreflightError(f"pool socket {path}: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    return sock


class Connections:
    """All clients of one service; each connection is an owner."""

    def __init__(self, service: PoolService) -> None:
        self._service = service
        self._owners = itertools.count(1)
        self._writers: set[asyncio.StreamWriter] = set()

    def close(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until it goes or breaks the protocol."""
        owner = next(self._owners)
        if len(self._writers) >= MAX_CLIENTS:
            log.warning("refused a client: there are %d", MAX_CLIENTS)
            writer.close()
            return
        self._writers.add(writer)
        try:
            while await self._answer(owner, reader, writer):
                pass
        except ProtocolError as error:
            log.warning("client %d: %s", owner, error)
        except (OSError, EOFError, TimeoutError):
            log.debug("client %d went", owner)
        finally:
            self._service.end_client(owner)
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, owner: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        try:
            lengths = await reader.readexactly(LENGTHS.size)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return False
        json_bytes, blob_bytes = LENGTHS.unpack(lengths)
        check_lengths(json_bytes, blob_bytes)
        async with asyncio.timeout(_STALL_S):
            fields = decode_fields(await reader.readexactly(json_bytes))
            blob = await reader.readexactly(blob_bytes)
        writer.write(encode(*self._service.handle(owner, fields, blob)))
        async with asyncio.timeout(_STALL_S):
            await writer.drain()
        return True
