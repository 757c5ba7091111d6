"""The handlers for people and machines that look after the gateway."""

import asyncio
import json
from typing import Any

from aiohttp import web

from prfaas.names import is_name
from prfaas.reasons import Reason
from prfaas.records import RoutingPolicy
from prfaas_coord import EtcdError, write_policy
from prfaas_gateway.decision_log import MAX_DECISIONS
from prfaas_gateway.errors import RequestError, ServiceError
from prfaas_gateway.fleet import Fleet
from prfaas_gateway.gateway import GATEWAY, Gateway
from prfaas_gateway.slow_clients import read_body

_MAX_THRESHOLD_TOKENS = 1 << 30
_MAX_TENANTS = 10_000
_POLICY_SETTINGS = {"threshold_tokens", "tenants"}
_POLICY_KEYS = {*_POLICY_SETTINGS, "version", "source"}
_READ_BACK_S = 1.0


async def handle_health(_request: web.Request) -> web.Response:
    """Say that the process is alive, whatever else is true."""
    return web.json_response({"status": "ok"})


async def handle_ready(request: web.Request) -> web.Response:
    """Say whether requests can be served, and if not, why."""
    fleet = request.app[GATEWAY].fleet
    missing = fleet.missing()
    body = {"ready": not missing, "missing": missing, "etcd_stale": fleet.view.status.stale}
    if fleet.view.status.detail:
        body["etcd_detail"] = fleet.view.status.detail
    return web.json_response(body, status=503 if missing else 200)


async def handle_metrics(request: web.Request) -> web.Response:
    """Return the metrics in the Prometheus text format."""
    gateway = request.app[GATEWAY]
    body = gateway.metrics.render(gateway.fleet)
    return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})


async def handle_models(request: web.Request) -> web.Response:
    """List the models of all nodes, each once."""
    fleet = request.app[GATEWAY].fleet
    names = sorted({node.model_id for node in fleet.engines()})
    return web.json_response({"object": "list", "data": [_model_json(fleet, n) for n in names]})


async def handle_model(request: web.Request) -> web.Response:
    """Return one model.

    Raises:
        RequestError: no node serves it.
        ServiceError: no engine is known at all.
    """
    fleet = request.app[GATEWAY].fleet
    node = fleet.find_model(request.match_info["model"])
    return web.json_response(_model_json(fleet, node.model_id))


def _model_json(fleet: Fleet, model_id: str) -> dict[str, Any]:
    started_s = [node.started_at_s for node in fleet.engines() if node.model_id == model_id]
    return {
        "id": model_id,
        "object": "model",
        "created": int(min(started_s)),
        "owned_by": "prfaas",
        "max_model_len": fleet.context_limit_tokens(model_id) or None,
    }


async def handle_fleet(request: web.Request) -> web.Response:
    """Return all that the gateway knows of its deployment."""
    gateway = request.app[GATEWAY]
    fleet = {"deployment": gateway.deployment, "active_requests": gateway.active_requests}
    return web.json_response(fleet | gateway.fleet.describe())


async def handle_decisions(request: web.Request) -> web.Response:
    """Return the last decisions, the newest first: `?limit=N&reason=WORD&request_id=ID`.

    Raises:
        RequestError: a limit or a reason that there is not.
    """
    query = request.query
    text, word = query.get("limit", "50"), query.get("reason", "")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_DECISIONS:
        raise RequestError(f"limit: {text[:20]!r}: allowed: 1 to {MAX_DECISIONS}", param="limit")
    if word and word not in list(Reason):
        raise RequestError(f"reason: {word[:40]!r}: one of {', '.join(Reason)}", param="reason")
    found = request.app[GATEWAY].dispatcher.decisions.recent(
        int(text),
        reason=Reason(word) if word else None,
        request_id=query.get("request_id", ""),
    )
    return web.json_response({"decisions": found})


async def handle_get_policy(request: web.Request) -> web.Response:
    """Return the routing policy in force."""
    return web.json_response(_policy_json(request.app[GATEWAY]))


async def handle_put_policy(request: web.Request) -> web.Response:
    """Store a routing policy in etcd, for all gateways of the deployment.

    Raises:
        RequestError: not a policy.
        ServiceError: etcd is away.
    """
    gateway = request.app[GATEWAY]
    policy = _parse_policy(await read_body(request), gateway.fleet.policy)
    try:
        written = await write_policy(gateway.etcd, gateway.deployment, policy)
    except EtcdError as error:
        raise ServiceError(Reason.NOT_READY, f"the policy was not stored: {error}") from None
    await _wait_until_in_force(gateway, written.version)
    return web.json_response(_policy_json(gateway))


async def _wait_until_in_force(gateway: Gateway, version: int) -> None:
    """Wait, but not long, until this gateway follows what it has just written."""
    try:
        async with asyncio.timeout(_READ_BACK_S):
            while gateway.fleet.policy.version < version:  # noqa: ASYNC110 - rare and short
                await asyncio.sleep(0.01)
    except TimeoutError:
        return


def _policy_json(gateway: Gateway) -> dict[str, Any]:
    policy = gateway.fleet.policy
    source = "etcd" if gateway.fleet.view.policy else "config"
    return {
        "threshold_tokens": policy.threshold_tokens,
        "version": policy.version,
        "tenants": policy.tenants,
        "source": source,
    }


def _parse_policy(raw: bytes, current: RoutingPolicy) -> RoutingPolicy:
    """Return the policy; what the body does not say stays as it is."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None
    if not isinstance(body, dict) or set(body) - _POLICY_KEYS or not set(body) & _POLICY_SETTINGS:
        raise RequestError('expected {"threshold_tokens": N, "tenants": {TENANT: LABEL}}')
    threshold = body.get("threshold_tokens", current.threshold_tokens)
    if type(threshold) is not int or not 0 <= threshold <= _MAX_THRESHOLD_TOKENS:
        raise RequestError(
            f"threshold_tokens: expected 0 to {_MAX_THRESHOLD_TOKENS}, got {threshold!r}",
            param="threshold_tokens",
        )
    tenants = body.get("tenants", current.tenants)
    if not isinstance(tenants, dict) or len(tenants) > _MAX_TENANTS:
        raise RequestError(f"tenants: expected at most {_MAX_TENANTS} of {{TENANT: LABEL}}")
    for tenant, label in tenants.items():
        for name in (tenant, label):
            if not isinstance(name, str) or not is_name(name):
                raise RequestError(f"tenants: {name!r}: not a name", param="tenants")
    return RoutingPolicy(threshold_tokens=threshold, tenants=tenants)
