"""The aiohttp application: its routes."""

from aiohttp import web

from prfaas_gateway import admin, admin_plan
from prfaas_gateway.admin_moves import add_moves
from prfaas_gateway.completions import handle_inference
from prfaas_gateway.dashboard import add_dashboard
from prfaas_gateway.gateway import GATEWAY, Gateway
from prfaas_gateway.inference import Api
from prfaas_gateway.peer_demand import DEMAND_PATH
from prfaas_gateway.request_frame import add_headers, with_access, with_errors, with_trace
from prfaas_gateway.tokenize_text import (
    DETOKENIZE_PATHS,
    TOKENIZE_PATHS,
    handle_detokenize,
    handle_tokenize,
)
from prfaas_gateway.tracing import add_tracing


def build_app(gateway: Gateway) -> web.Application:
    """Return the application of a gateway."""
    app = web.Application(
        client_max_size=gateway.section.max_body_bytes,
        middlewares=[with_trace, with_errors, with_access],
    )
    app[GATEWAY] = gateway
    add_moves(app)
    app.on_response_prepare.append(add_headers)
    app.add_routes([web.post(api, handle_inference) for api in Api])
    app.add_routes([web.post(path, handle_tokenize) for path in TOKENIZE_PATHS])
    app.add_routes([web.post(path, handle_detokenize) for path in DETOKENIZE_PATHS])
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
    add_dashboard(app)
    add_tracing(app)
    return app
