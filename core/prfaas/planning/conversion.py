"""Which node to convert next so that the roles become the plan's: one per region at a time."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prfaas.plan_record import RoleCounts
from prfaas.records import NodeRecord, Role
from prfaas.routing import NodeState

ENGINE_ROLES = (Role.PREFILL, Role.DECODE)


class Conversion(NamedTuple):
    """Let the node take the role."""

    node: NodeRecord
    role: Role


def next_conversions(
    roles: Mapping[str, RoleCounts], states: Iterable[NodeState]
) -> list[Conversion]:
    """Return at most one conversion per region of the plan.

    Only where one role has too many nodes and the other too few: a node that is merely away is no
    reason. A region where a node drains already has to wait. The least loaded node goes that can.
    """
    by_region: dict[str, list[NodeState]] = {region: [] for region in roles}
    for state in states:
        if state.record.role in ENGINE_ROLES and state.record.region in by_region:
            by_region[state.record.region].append(state)
    found = (_next(roles[region], members) for region, members in by_region.items())
    return [conversion for conversion in found if conversion is not None]


def wanted_role(counts: RoleCounts, nodes: Iterable[NodeRecord]) -> Role | None:
    """Return the role that a region has too few nodes of, while it has too many of the other.

    A node that drains counts as what it is.
    """
    roles = [node.role for node in nodes]
    prefills, decodes = roles.count(Role.PREFILL), roles.count(Role.DECODE)
    if prefills < counts.n_p and decodes > counts.n_d:
        return Role.PREFILL
    if decodes < counts.n_d and prefills > counts.n_p:
        return Role.DECODE
    return None


def _next(counts: RoleCounts, states: list[NodeState]) -> Conversion | None:
    if any(state.record.draining for state in states):
        return None
    role = wanted_role(counts, (state.record for state in states))
    if role is None:
        return None
    givers = [state for state in states if state.record.role is not role]
    able = [state for state in givers if state.record.role_switch]
    if not able or len(givers) < 2:
        return None
    best = min(able, key=lambda state: (state.backlog_tokens, state.in_flight, state.record.name))
    return Conversion(best.record, role)
