"""Which deployment a namespace belongs to.

Names alone are ambiguous (`prfaas-x-y` is region `x-y` of the default deployment or region `y` of
deployment `x`), so the owner is written into the namespace: the alias of its loopback interface.
"""

from prfaas.errors import StateError
from prfaas_netem import namespace
from prfaas_netem.route_socket import route_socket_in
from prfaas_netem.topology import DEFAULT_DEPLOYMENT, NAMESPACE_PREFIX

_MARK = "prfaas deployment "
_LOOPBACK = 1


def mark(name: str, deployment: str) -> None:
    """Write the owner into a namespace."""
    with route_socket_in(name) as socket:
        socket.link("set", index=_LOOPBACK, ifalias=_MARK + deployment)


def owner_of(name: str) -> str | None:
    """Return the deployment written into a namespace; None when none is or it is not usable."""
    try:
        with route_socket_in(name) as socket:
            alias = socket.link("get", index=_LOOPBACK)[0].get_attr("IFLA_IFALIAS") or ""
    except StateError:
        return None
    return str(alias).removeprefix(_MARK) if alias.startswith(_MARK) else None


def namespaces_of(deployment: str) -> tuple[str, ...]:
    """Return all namespaces of a deployment, also half-built ones and other regions' than planned.

    A namespace without an owner counts only when its name cannot mean another deployment.
    """
    candidates = [name for name in namespace.names() if _may_belong(name, deployment)]
    return tuple(name for name in candidates if _belongs(name, deployment))


def _may_belong(name: str, deployment: str) -> bool:
    inner = "" if deployment == DEFAULT_DEPLOYMENT else f"{deployment}-"
    return name.startswith(NAMESPACE_PREFIX + inner)


def _belongs(name: str, deployment: str) -> bool:
    owner = owner_of(name)
    if owner is not None:
        return owner == deployment
    part = name.removeprefix(NAMESPACE_PREFIX)
    if deployment == DEFAULT_DEPLOYMENT:
        return "-" not in part
    return "-" not in part.removeprefix(f"{deployment}-")
