"""Faults that a drill injects into a twin: slowness, a hang, a crash.

Served on 127.0.0.1, if `twin.admin_port` says so, and on a Unix socket of the node's directory,
which reaches into network namespaces; nowhere else.
"""

import asyncio
from typing import Any, Protocol

from aiohttp import web

from prfaas_twin.ask import BadAskError, read_object
from prfaas_twin.loop_clock import LoopClock

_MOST_SLOWNESS, _MOST_STALL_S = 1e4, 86400.0


class Faulty(Protocol):
    """What faults are injected into."""

    clock: LoopClock

    @property
    def slowness(self) -> float:
        """By how much compute is slower than the profile."""

    def slow_down(self, factor: float) -> None:
        """Take that many times longer."""

    def crash(self) -> None:
        """End at once."""


def admin_app(twin: Faulty) -> web.Application:
    """Return the application that injects faults; GET says which there are."""
    app = web.Application(client_max_size=1 << 16)
    routes = _Routes(twin)
    app.router.add_get("/faults", routes.show)
    app.router.add_post("/faults", routes.inject)
    return app


class _Routes:
    """The handlers; one stall at a time: a new one takes the place of the last."""

    def __init__(self, twin: Faulty) -> None:
        self._twin = twin
        self._resume: asyncio.TimerHandle | None = None

    async def show(self, _request: web.Request) -> web.Response:
        """Say what is injected."""
        return web.json_response(self._state())

    async def inject(self, request: web.Request) -> web.Response:
        """Take `slowness`, `stall_s` (0 ends one) and `crash`."""
        try:
            body = read_object(await request.read())
            slowness = _number(body, "slowness", 1e-3, _MOST_SLOWNESS)
            stall_s = _number(body, "stall_s", 0.0, _MOST_STALL_S)
            unknown = body.keys() - {"slowness", "stall_s", "crash"}
            if unknown:
                raise BadAskError(f"unknown: {', '.join(sorted(unknown))}")
        except BadAskError as error:
            return web.json_response({"error": str(error)}, status=400)
        if slowness is not None:
            self._twin.slow_down(slowness)
        if stall_s is not None:
            self._stall(stall_s)
        if body.get("crash") is True:
            self._twin.crash()
        return web.json_response(self._state())

    def _stall(self, seconds: float) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if seconds:
            self._twin.clock.pause()
            loop = asyncio.get_running_loop()
            self._resume = loop.call_later(seconds, self._twin.clock.resume)
        else:
            self._twin.clock.resume()

    def _state(self) -> dict[str, Any]:
        return {"slowness": self._twin.slowness, "stalled": self._twin.clock.is_paused}


def _number(body: dict[str, Any], key: str, least: float, most: float) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadAskError(f"{key} = {value!r}: allowed is {least:g} to {most:g}")
    return float(value)
