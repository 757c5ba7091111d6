"""`/dashboard`: one page for people, and the document that it asks for every two seconds."""

import base64
import hashlib
import math
from collections.abc import AsyncIterator
from functools import cache
from importlib.resources import files

from aiohttp import web

from prfaas_gateway.errors import RequestError
from prfaas_gateway.gateway import GATEWAY
from prfaas_gateway.overview import overview
from prfaas_gateway.watcher import Watcher, sampling

OVERVIEW_PATH = "/admin/v1/overview"
DASHBOARD_PATH = "/dashboard"
MAX_DECISIONS_SHOWN = 100
_SCRIPTS = ("draw.js", "chart.js", "sections.js", "tables.js", "live.js")

WATCHER = web.AppKey("watcher", Watcher)


def add_dashboard(app: web.Application) -> None:
    """Add the page and its document to a gateway's application, and watch while that runs."""
    app[WATCHER] = Watcher(app[GATEWAY])
    app.cleanup_ctx.append(_watching)
    app.add_routes(
        [web.get(DASHBOARD_PATH, handle_dashboard), web.get(OVERVIEW_PATH, handle_overview)]
    )


async def _watching(app: web.Application) -> AsyncIterator[None]:
    async with sampling(app[WATCHER]):
        yield


async def handle_dashboard(_request: web.Request) -> web.Response:
    """Return the page. It holds nothing of the deployment, so it needs no key."""
    text, policy = page()
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(text=text, content_type="text/html", headers=headers)


async def handle_overview(request: web.Request) -> web.Response:
    """Return all that the page shows: `?since=UNIX_SECONDS&decisions=N`.

    Raises:
        RequestError: not such numbers.
    """
    since_s = _number(request, "since", default=0.0, most=math.inf)
    decisions = _number(request, "decisions", default=20, most=MAX_DECISIONS_SHOWN)
    shown = overview(request.app[WATCHER], since_s=since_s, num_decisions=int(decisions))
    return web.json_response(shown, headers={"Cache-Control": "no-store"})


def _number(request: web.Request, name: str, *, default: float, most: float) -> float:
    text = request.query.get(name, "")
    try:
        number = float(text) if text else default
    except ValueError:
        number = -1.0
    if not math.isfinite(number) or not 0 <= number <= most:
        raise RequestError(f"{name}: {text[:20]!r}: allowed: 0 to {most:g}", param=name)
    return number


@cache
def page() -> tuple[str, str]:
    """Return the page with all that it needs inside, and the policy that allows just that."""
    folder = files("prfaas_gateway") / "page"
    style = (folder / "page.css").read_text("utf-8")
    parts = [(folder / name).read_text("utf-8") for name in _SCRIPTS]
    script = '"use strict";\n' + "\n".join(parts)
    text = (folder / "page.html").read_text("utf-8")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return text.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script), policy


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
