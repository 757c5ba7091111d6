"""Pages of other origins in browsers: which may use the API. Never the admin's paths."""

from collections.abc import Collection

from aiohttp import web

_ADMIN = "/admin/"
_METHODS = "GET, POST, OPTIONS"
_MAX_AGE_S = 600
_ALWAYS_ALLOWED = "authorization, content-type, x-request-id, traceparent, tracestate"
_EXPOSED = ", ".join(
    f"x-prfaas-{name}" for name in ("route", "reason", "prefill", "prompt-tokens", "prefix-tokens")
)
_MAX_ASKED_LENGTH = 1024


class Cors:
    """The allowed origins; `*` is all."""

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = frozenset(origins)

    def preflight(self, request: web.Request) -> web.Response | None:
        """Return the answer to a browser that asks beforehand; None if this is nothing of it."""
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
            return None
        if not self._allows(request):
            return None
        asked = request.headers.get("Access-Control-Request-Headers", "")
        allowed = asked if asked and len(asked) <= _MAX_ASKED_LENGTH else _ALWAYS_ALLOWED
        headers = {
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": allowed,
            "Access-Control-Max-Age": str(_MAX_AGE_S),
        }
        return web.Response(status=204, headers=headers)

    def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Let the page read the answer, where it may."""
        if not self._origins or request.path.startswith(_ADMIN):
            return
        response.headers["Vary"] = "Origin"
        if self._allows(request):
            response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response.headers["Access-Control-Expose-Headers"] = f"x-request-id, {_EXPOSED}"

    def _allows(self, request: web.Request) -> bool:
        origin = request.headers.get("Origin", "")
        if not origin or request.path.startswith(_ADMIN):
            return False
        return origin in self._origins or "*" in self._origins
