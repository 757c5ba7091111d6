"""Ask a node agent to do something: HTTP on a Unix socket beside its files.

Whoever may open the socket may change the node; its mode is 0600.

`POST /role {"role": "prefill", "force": false, "timeout_s": 60}` and
`POST /drain {"draining": true, "force": false, "timeout_s": 60}` answer 200 and what became of the
node, 400 for a request that is none, 409 and `{"error": reason}` where the node refuses.
"""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web

from prfaas.errors import PreflightError, StateError
from prfaas.records import Role
from prfaas_agent.drain import Drained
from prfaas_agent.role_switch import RoleChange

#: Change the role: role, force, seconds to drain.
ChangeRole = Callable[[Role, bool, float], Awaitable[RoleChange]]
#: Drain, or offer again where the first is false: draining, force, seconds to drain.
Drain = Callable[[bool, bool, float], Awaitable[Drained]]

MAX_TIMEOUT_S = 3600.0
_MAX_BODY_BYTES = 1 << 16


@asynccontextmanager
async def control(path: Path, change_role: ChangeRole, drain: Drain) -> AsyncIterator[None]:
    """Serve while the context lasts.

    Raises:
        PreflightError: the socket cannot be made.
    """

    async def post_role(request: web.Request) -> web.Response:
        body, force, timeout_s = _parse(await request.read(), "role")
        if body not in (Role.PREFILL, Role.DECODE):
            raise ValueError(f"role {body!r}: allowed: prefill, decode")
        return web.json_response(asdict(await change_role(Role(body), force, timeout_s)))

    async def post_drain(request: web.Request) -> web.Response:
        draining, force, timeout_s = _parse(await request.read(), "draining")
        if type(draining) is not bool:
            raise ValueError(f"draining {draining!r}: expected true or false")
        return web.json_response(asdict(await drain(draining, force, timeout_s)))

    app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_with_refusals])
    app.router.add_post("/role", post_role)
    app.router.add_post("/drain", post_drain)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        _remove(path)
        mask = os.umask(0o177)
        try:
            await web.UnixSite(runner, str(path)).start()
        finally:
            os.umask(mask)
        yield
    except OSError as error:
        raise PreflightError(f"cannot serve {path}: {error.strerror or error}") from None
    finally:
        await runner.cleanup()
        _remove(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


@web.middleware
async def _with_refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except ValueError as error:
        return web.json_response({"error": str(error)}, status=400)
    except StateError as error:
        return web.json_response({"error": str(error)}, status=409)


def _parse(raw: bytes, what: str) -> tuple[Any, bool, float]:
    """Return the value of `what`, force and timeout. Raises: ValueError, with what is wrong."""
    body: Any = json.loads(raw)
    if not isinstance(body, dict) or set(body) - {what, "force", "timeout_s"}:
        raise ValueError(f'expected {{"{what}": ..., "force": false, "timeout_s": 60}}')
    force, timeout_s = body.get("force", False), body.get("timeout_s", 60)
    if type(force) is not bool:
        raise ValueError(f"force {force!r}: expected true or false")
    if type(timeout_s) not in (int, float) or not 0 <= timeout_s <= MAX_TIMEOUT_S:
        raise ValueError(f"timeout_s {timeout_s!r}: allowed is 0 to {MAX_TIMEOUT_S:g}")
    return body.get(what), force, float(timeout_s)
