"""Whether two nodes can send each other caches."""

from collections.abc import Iterable

from prfaas.records import NodeRecord


def layout_problem(node: NodeRecord, nodes: Iterable[NodeRecord]) -> str | None:
    """Return why a node must not join the `nodes` of its deployment; None if it may.

    All engines of a model transfer alike: the same groups with the same bytes per item, from the
    same number of workers. One that does not would take requests and fail each of them.

    >>> from prfaas.records import Role
    >>> one = NodeRecord("a", Role.PREFILL, "a", "", "", model_id="m", layout="1f", tp_size=2)
    >>> two = NodeRecord("b", Role.DECODE, "b", "", "", model_id="m", layout="3c", tp_size=1)
    >>> layout_problem(one, [one]), layout_problem(one, [two]) is None
    (None, False)
    """
    if not node.layout:
        return None
    for other in nodes:
        if other.name == node.name or other.model_id != node.model_id or not other.layout:
            continue
        if other.tp_size != node.tp_size:
            return (
                f"{node.name} runs {node.model_id} at TP {node.tp_size}, {other.name} at"
                f" TP {other.tp_size}: start both with the same --tp-size, or give one another"
                " model_id"
            )
        if other.layout != node.layout:
            return (
                f"{node.name} transfers {node.model_id} as layout {node.layout}, {other.name} as"
                f" {other.layout}: start both from the same model with the same dtypes, page size"
                " and state options, or give one another model_id"
            )
    return None
