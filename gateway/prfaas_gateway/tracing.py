"""Spans of all requests for tokens, where a collector is configured; else nothing."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace

from aiohttp import web
from aiohttp.typedefs import Handler

from prfaas_coord.companion import Companion
from prfaas_gateway.dispatch import Trace
from prfaas_gateway.gateway import GATEWAY, TRACE
from prfaas_gateway.inference import Api
from prfaas_gateway.request_spans import RequestSpans, Sent
from prfaas_gateway.responses import CLIENT_GONE_STATUS
from prfaas_gateway.span_exporter import ExportSettings, SpanExporter
from prfaas_gateway.spans import Span, SpanKind

_PROMPT_PATHS = frozenset(Api)
_ASK_TIMEOUT_S = 1.0


def add_tracing(app: web.Application, environment: Mapping[str, str] = os.environ) -> None:
    """Have requests traced, if the environment names a collector (`OTEL_EXPORTER_OTLP_ENDPOINT`).

    Raises:
        ConfigError: a variable with a value that cannot be used.
    """
    settings = ExportSettings.of(environment)
    if settings is None:
        return
    runner = app[GATEWAY].dispatcher.runner

    async def ask_room(sent: Sent) -> dict[str, object]:
        if not sent.prefill.agent_url:
            return {}
        return await runner.ask(f"{sent.prefill.agent_url}/rooms/{sent.room}", _ASK_TIMEOUT_S)

    gateway = app[GATEWAY]
    ours = {"prfaas.gateway": gateway.scheduler.name, "prfaas.region": gateway.fleet.region}
    resource = {**settings.resource, **ours}
    exporter = SpanExporter(replace(settings, resource=resource), ask_room)
    app.middlewares.append(_with_spans(exporter))
    app.cleanup_ctx.append(_exporting(exporter))


def _exporting(exporter: SpanExporter) -> Callable[[web.Application], AsyncIterator[None]]:
    async def export(_app: web.Application) -> AsyncIterator[None]:
        companion = Companion()
        await companion.start(exporter.run(), name="spans")
        yield
        await companion.stop(None, None)

    return export


def _with_spans(exporter: SpanExporter) -> Callable[..., Awaitable[web.StreamResponse]]:
    @web.middleware
    async def with_spans(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Follow a request for tokens, unless its client has said that its trace is not kept."""
        trace = request[TRACE]
        spans = _begin(request, trace) if request.path in _PROMPT_PATHS else None
        if spans is None:
            return await handler(request)
        trace.spans, status = spans, 500
        try:
            response = await handler(request)
            status = response.status
        except (asyncio.CancelledError, ConnectionResetError):
            status = CLIENT_GONE_STATUS
            raise
        finally:
            _end(spans.root, trace, status)
            exporter.take(spans)
        return response

    return with_spans


def _begin(request: web.Request, trace: Trace) -> RequestSpans | None:
    """Return the request's spans, below the client's span where it has one."""
    context = trace.context
    if context is None:
        return None
    _, trace_id, parent_id, flags = context.traceparent.split("-")[:4]
    if not int(flags, 16) & 1:
        return None
    is_given = request.headers.get("traceparent", "") == context.traceparent
    name = f"{request.method} {request.path}"
    root = Span(name, trace_id, parent_id if is_given else "", SpanKind.SERVER, time.time())
    root.attributes |= {
        "http.request.method": request.method,
        "url.path": request.path,
        "prfaas.request_id": trace.request_id,
    }
    return RequestSpans(root)


def _end(root: Span, trace: Trace, status: int) -> None:
    root.end_s = time.time()
    root.attributes |= {
        "http.response.status_code": status,
        "prfaas.route": str(trace.route),
        "prfaas.reason": str(trace.reason or ""),
        "prfaas.prompt_tokens": trace.prompt_tokens,
        "prfaas.attempts": trace.attempts,
    }
    if status >= 500:
        root.error = str(trace.reason or "internal_error")
