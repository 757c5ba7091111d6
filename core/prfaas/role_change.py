"""When a node may take the other role, or leave its own for a while."""

from collections.abc import Iterable

from prfaas.records import NodeRecord, Role


def role_change_problem(node: NodeRecord, role: Role, nodes: Iterable[NodeRecord]) -> str | None:
    """Return why `node` should keep its role, given all registered `nodes`; None if it may change.

    A region shall not lose the last node of a role. Draining nodes are on their way out of theirs
    and do not count: of two that go at once neither takes the other for the one that stays.

    >>> node = NodeRecord("b-decode-0", Role.DECODE, "b", url="", session="")
    >>> role_change_problem(node, Role.PREFILL, [node])
    'b-decode-0 is the only decode node of region b that is not draining'
    """
    if role is Role.GATEWAY or node.role is Role.GATEWAY:
        return f"{node.name}: only prefill and decode nodes change their role, into one another"
    stays = [
        other
        for other in nodes
        if other.name != node.name
        and (other.role, other.region) == (node.role, node.region)
        and not other.draining
    ]
    if stays:
        return None
    return f"{node.name} is the only {node.role} node of region {node.region} that is not draining"


def drain_problem(node: NodeRecord, nodes: Iterable[NodeRecord]) -> str | None:
    """Return why `node` should go on serving, given all registered `nodes`; None if others can.

    Requests are decoded where their gateway is, and prefilled anywhere.

    >>> node = NodeRecord("b-decode-0", Role.DECODE, "b", url="", session="")
    >>> drain_problem(node, [node, NodeRecord("a-decode-0", Role.DECODE, "a", url="", session="")])
    'b-decode-0 is the only decode node of region b that is not draining'
    """
    stays = [
        other
        for other in nodes
        if other.name != node.name and other.role is node.role and not other.draining
    ]
    if node.role is Role.DECODE:
        where = f" of region {node.region}"
        stays = [other for other in stays if other.region == node.region]
    else:
        where = ""
    if stays:
        return None
    return f"{node.name} is the only {node.role} node{where} that is not draining"
