"""The aiohttp application: routes, and what happens around every request."""

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Callable

from aiohttp import web

from prfaas.reasons import Reason
from prfaas_gateway import admin, admin_plan
from prfaas_gateway.completions import handle_inference
from prfaas_gateway.dispatch import Trace
from prfaas_gateway.errors import GatewayError, ServiceError
from prfaas_gateway.gateway import GATEWAY, TRACE, Gateway
from prfaas_gateway.inference import Api
from prfaas_gateway.peer_demand import DEMAND_PATH
from prfaas_gateway.responses import error_response, http_error_response

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def build_app(gateway: Gateway) -> web.Application:
    """Return the application of a gateway."""
    app = web.Application(
        client_max_size=gateway.section.max_body_bytes, middlewares=[_with_trace, _with_errors]
    )
    app[GATEWAY] = gateway
    app.on_response_prepare.append(_add_headers)
    app.add_routes([web.post(api, handle_inference) for api in Api])
    app.add_routes(
        [
            web.get("/v1/models", admin.handle_models),
            # A model's name may have slashes in it.
            web.get("/v1/models/{model:.+}", admin.handle_model),
            web.get("/health", admin.handle_health),
            web.get("/ready", admin.handle_ready),
            web.get("/metrics", admin.handle_metrics),
            web.get("/admin/v1/fleet", admin.handle_fleet),
            web.get("/admin/v1/decisions", admin.handle_decisions),
            web.get(DEMAND_PATH, admin_plan.handle_demand),
            web.get("/admin/v1/plan", admin_plan.handle_get_plan),
            web.put("/admin/v1/plan", admin_plan.handle_put_plan),
            web.get("/admin/v1/plan/versions", admin_plan.handle_get_versions),
            web.get("/admin/v1/policy", admin.handle_get_policy),
            web.put("/admin/v1/policy", admin.handle_put_policy),
        ]
    )
    return app


@web.middleware
async def _with_trace(request: web.Request, handler: Handler) -> web.StreamResponse:
    given = request.headers.get("x-request-id", "")
    request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
    request[TRACE] = Trace(request_id, asyncio.get_running_loop().time())
    return await handler(request)


@web.middleware
async def _with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except GatewayError as error:
        return error_response(error)
    except web.HTTPException as error:
        return http_error_response(request, error)
    except ConnectionResetError:
        raise
    except Exception:  # the request's outermost frame: answer in our form, keep the trace
        logger.exception("%s %s", request.method, request.path)
        return error_response(ServiceError(Reason.INTERNAL_ERROR, "internal error"))


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    trace = request.get(TRACE)
    if trace is None:
        return
    response.headers["x-request-id"] = trace.request_id
    if trace.prompt_tokens:
        response.headers["x-prfaas-prompt-tokens"] = str(trace.prompt_tokens)
    if trace.reason is not None:
        response.headers["x-prfaas-route"] = trace.route
        response.headers["x-prfaas-reason"] = trace.reason
    if trace.decision is not None:
        response.headers["x-prfaas-prefill"] = trace.decision.prefill.name
        response.headers["x-prfaas-prefix-tokens"] = str(trace.decision.prefix_tokens)
