"""The handlers of the plan: what it is, what it was, and what an operator wants it to be."""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from prfaas.errors import ConfigError
from prfaas.plan_record import PlanRecord, RoleCounts, plan_problems
from prfaas.reasons import Reason
from prfaas_coord import EtcdError, StoredPlan, read_plan, read_versions
from prfaas_gateway.errors import RequestError, ServiceError
from prfaas_gateway.gateway import GATEWAY, Gateway
from prfaas_gateway.scheduler import PlanChange
from prfaas_gateway.slow_clients import read_body

_KEYS = {"threshold_tokens", "roles", "pinned", "why", "dry_run", "expected_version"}
_TRIES = 5


async def handle_get_plan(request: web.Request) -> web.Response:
    """Return the plan in force, what the scheduler sees, and what it proposes."""
    gateway = request.app[GATEWAY]
    stored = await _read(gateway)
    answer = {
        "plan": asdict(stored.plan) if stored.plan else None,
        "threshold_tokens": gateway.fleet.policy.threshold_tokens,
        **gateway.scheduler.describe(),
    }
    return web.json_response(answer)


async def handle_demand(request: web.Request) -> web.Response:
    """Return the demand of this gateway's own requests, for the leader."""
    seen = request.app[GATEWAY].scheduler.demand.seen(at_s=time.time())
    return web.json_response({"demand": seen.to_json() if seen else None})


async def handle_get_versions(request: web.Request) -> web.Response:
    """Return the plan's versions, the newest first."""
    gateway = request.app[GATEWAY]
    try:
        versions = await read_versions(gateway.etcd, gateway.deployment)
    except EtcdError as error:
        raise ServiceError(Reason.NOT_READY, f"the plan cannot be read: {error}") from None
    return web.json_response({"versions": [asdict(plan) for plan in versions]})


async def handle_put_plan(request: web.Request) -> web.Response:
    """Store another version of the plan, or say what it would be (`"dry_run": true`).

    What the body does not say stays as it is. With `expected_version` it is refused if there is
    another version meanwhile.

    Raises:
        RequestError: not a plan, or not over that version.
        ServiceError: etcd is away.
    """
    gateway = request.app[GATEWAY]
    body = _parse(await read_body(request))
    change = _change(body, by=f"operator at {gateway.scheduler.name}")
    for _ in range(_TRIES):
        stored = await _read(gateway)
        _check_regions(body.get("roles", {}), gateway, stored)
        expected = body.get("expected_version", stored.version)
        if expected != stored.version:
            raise RequestError(
                f"expected_version: {expected!r:.40}, but there is version {stored.version}",
                param="expected_version",
            )
        if body.get("dry_run"):
            plan = change.over(stored, gateway.fleet.policy.threshold_tokens)
            return web.json_response(_answer(stored, plan, dry_run=True))
        written = await _write(gateway, change, stored)
        if written is not None:
            return web.json_response(_answer(stored, written, dry_run=False))
    raise ServiceError(Reason.NOT_READY, f"{_TRIES} writes were overtaken by others; try again")


def _check_regions(roles: Iterable[str], gateway: Gateway, stored: StoredPlan) -> None:
    """Raise RequestError where roles are for a region that neither has nodes nor is in the plan."""
    known = {node.region for node in gateway.fleet.view.nodes.values()}
    known |= {gateway.fleet.region, *(stored.plan.roles if stored.plan else ())}
    for region in roles:
        if region not in known:
            text = f"roles.{region}: no such region; known: {', '.join(sorted(known))}"
            raise RequestError(text, param="roles")


async def _read(gateway: Gateway) -> StoredPlan:
    try:
        return await read_plan(gateway.etcd, gateway.deployment)
    except (EtcdError, ConfigError) as error:
        raise ServiceError(Reason.NOT_READY, f"the plan cannot be read: {error}") from None


async def _write(gateway: Gateway, change: PlanChange, stored: StoredPlan) -> PlanRecord | None:
    try:
        return await gateway.scheduler.apply(change, stored)
    except EtcdError as error:
        raise ServiceError(Reason.NOT_READY, f"the plan was not stored: {error}") from None


def _answer(stored: StoredPlan, plan: PlanRecord, *, dry_run: bool) -> dict[str, Any]:
    before = asdict(stored.plan) if stored.plan else {}
    after = asdict(plan)
    changes = {
        key: [before.get(key), after[key]]
        for key in ("threshold_tokens", "roles", "pinned")
        if before.get(key) != after[key]
    }
    return {"dry_run": dry_run, "plan": after, "changes": changes}


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None
    if not isinstance(body, dict) or set(body) - _KEYS:
        raise RequestError(f"expected an object of some of: {', '.join(sorted(_KEYS))}")
    for key in ("pinned", "dry_run"):
        if type(body.get(key, False)) is not bool:
            raise RequestError(f"{key}: {body[key]!r:.40}: expected true or false", param=key)
    given = (body.get("threshold_tokens", 0), body.get("roles", {}), body.get("why", ""))
    for problem in plan_problems(*given):
        raise RequestError(problem)
    return body


def _change(body: dict[str, Any], *, by: str) -> PlanChange:
    roles = {region: RoleCounts(**counts) for region, counts in body.get("roles", {}).items()}
    return PlanChange(
        threshold_tokens=body.get("threshold_tokens"),
        roles=roles,
        pinned=body.get("pinned"),
        why=body.get("why", ""),
        by=by,
    )
