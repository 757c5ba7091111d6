"""From a Reason to the HTTP answer that a client understands: statuses are chosen here only."""

import json
import math
from dataclasses import dataclass

from aiohttp import web

from prfaas.reasons import Reason
from prfaas_gateway.errors import GatewayError, RequestError, ServiceError


@dataclass(frozen=True, slots=True)
class _Form:
    status: int
    error_type: str
    retry_after_s: int | None = None


_FORMS: dict[Reason, _Form] = {
    Reason.INVALID_REQUEST: _Form(400, "invalid_request_error"),
    Reason.MODEL_NOT_FOUND: _Form(404, "invalid_request_error"),
    Reason.BODY_TOO_LARGE: _Form(413, "invalid_request_error"),
    Reason.OVERLOADED: _Form(503, "overloaded_error", 1),
    Reason.FALLBACK_BUDGET: _Form(503, "overloaded_error", 1),
    Reason.RESIDENCY: _Form(403, "invalid_request_error"),
    Reason.INVALID_API_KEY: _Form(401, "invalid_request_error"),
    Reason.NOT_ALLOWED: _Form(403, "invalid_request_error"),
    Reason.RATE_LIMIT_EXCEEDED: _Form(429, "rate_limit_error", 1),
    Reason.REQUEST_TIMEOUT: _Form(408, "invalid_request_error"),
    Reason.NOT_READY: _Form(503, "service_unavailable_error", 1),
    Reason.NO_DECODE: _Form(503, "service_unavailable_error", 1),
    Reason.NO_PREFILL: _Form(503, "service_unavailable_error", 1),
    Reason.OFFLOAD_FAILED: _Form(502, "upstream_error", 1),
    Reason.LOCAL_FAILED: _Form(502, "upstream_error", 1),
    Reason.DECODE_LOST: _Form(502, "upstream_error"),
    Reason.DEADLINE_EXCEEDED: _Form(504, "timeout_error"),
    Reason.INTERNAL_ERROR: _Form(500, "internal_error"),
}

SERVER = "prfaas"
"""Who answers; no word of what it is made of."""

CLIENT_GONE_STATUS = 499
"""Counted, never sent: nobody is there to read it."""


def error_response(error: GatewayError) -> web.Response:
    """Return the OpenAI form of an error."""
    form = _FORMS[error.reason]
    param = error.param if isinstance(error, RequestError) else None
    body = error_body(str(error), form.error_type, error.reason, param=param)
    response = web.Response(status=form.status, body=body, content_type="application/json")
    known_s = error.retry_after_s if isinstance(error, ServiceError) else None
    retry_after_s = form.retry_after_s if known_s is None else math.ceil(known_s)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(max(retry_after_s, 1))
    if error.reason is Reason.INVALID_API_KEY:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def http_error_response(request: web.Request, error: web.HTTPException) -> web.Response:
    """Return the OpenAI form of an error that aiohttp raised, such as an unknown path."""
    code = error.reason.lower().replace(" ", "_")
    message = f"{request.method} {request.path}: {error.reason.lower()}"
    body = error_body(message, "invalid_request_error", code)
    response = web.Response(status=error.status, body=body, content_type="application/json")
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def error_event(error: GatewayError) -> bytes:
    """Return the last event of a stream that cannot go on."""
    form = _FORMS[error.reason]
    return b"data: " + error_body(str(error), form.error_type, error.reason) + b"\n\n"


def error_body(message: str, error_type: str, code: str, *, param: str | None = None) -> bytes:
    """Return an OpenAI error object as JSON."""
    error = {"message": message, "type": error_type, "param": param, "code": code}
    return json.dumps({"error": error}).encode()
