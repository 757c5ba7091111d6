"""What happens around every request: its names, who it is from, its errors, its headers."""

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Callable

from aiohttp import web

from prfaas.reasons import Reason, Route
from prfaas_gateway.access import CLIENT
from prfaas_gateway.dispatch import Trace
from prfaas_gateway.errors import GatewayError, RequestError, ServiceError
from prfaas_gateway.gateway import GATEWAY, TRACE
from prfaas_gateway.inference import TOO_DEEP, Api
from prfaas_gateway.responses import SERVER, error_response, http_error_response
from prfaas_gateway.trace_context import TraceContext

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PROMPT_PATHS = frozenset(Api)


def request_id_of(given: str) -> str:
    """Return what the client calls its request, or a new name where that is none."""
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


@web.middleware
async def with_trace(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give the request its names."""
    request_id = request_id_of(request.headers.get("x-request-id", ""))
    context = TraceContext.of(request.headers)
    request[TRACE] = Trace(request_id, asyncio.get_running_loop().time(), context=context)
    return await handler(request)


@web.middleware
async def with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors in OpenAI's form."""
    try:
        return await handler(request)
    except GatewayError as error:
        return error_response(error)
    except web.HTTPException as error:
        return http_error_response(request, error)
    except ConnectionResetError:
        raise
    except RecursionError:
        return error_response(RequestError(TOO_DEEP))
    except Exception:  # the request's outermost frame: answer in our form, keep the trace
        logger.exception("%s %s", request.method, request.path)
        return error_response(ServiceError(Reason.INTERNAL_ERROR, "internal error"))


@web.middleware
async def with_access(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Serve who may ask for this, and not more of it than the key allows."""
    gateway = request.app[GATEWAY]
    preflight = gateway.cors.preflight(request)
    if preflight is not None:
        return preflight
    try:
        client = gateway.access.check(request)
        if client is None:
            return await handler(request)
        with client.serving():
            request[CLIENT] = client
            return await handler(request)
    except GatewayError as error:
        # What a handler raises has been counted there; handlers of prompts raise nothing.
        if request.path in _PROMPT_PATHS:
            request[TRACE].error = error.reason
            status = error_response(error).status
            gateway.metrics.note_request(Route.NONE, error.reason, status)
        raise


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Say what became of the request."""
    trace = request.get(TRACE)
    if trace is None:
        return
    request.app[GATEWAY].cors.add_headers(request, response)
    response.headers["x-request-id"] = trace.request_id
    response.headers["Server"] = SERVER
    if trace.prompt_tokens:
        response.headers["x-prfaas-prompt-tokens"] = str(trace.prompt_tokens)
    if trace.reason is not None:
        response.headers["x-prfaas-route"] = trace.route
        response.headers["x-prfaas-reason"] = trace.reason
    if trace.decision is not None:
        response.headers["x-prfaas-prefill"] = trace.decision.prefill.name
        response.headers["x-prfaas-prefix-tokens"] = str(trace.decision.prefix_tokens)
