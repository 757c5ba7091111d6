"""Where a request may go: what its headers and its tenant's rule demand."""

from collections.abc import Mapping

from prfaas.errors import ConfigError
from prfaas.names import check_name
from prfaas.reasons import Reason
from prfaas.records import RoutingPolicy
from prfaas_gateway.errors import RequestError

RESIDENCY_HEADER = "x-prfaas-residency"
TENANT_HEADER = "x-prfaas-tenant"


def residency_of(headers: Mapping[str, str], policy: RoutingPolicy) -> str:
    """Return the label that all nodes of a request must have; empty if it may go anywhere.

    Raises:
        RequestError: a header is not a name, or asks for another place than the tenant's rule.
    """
    asked = _name(headers, RESIDENCY_HEADER)
    tenant = _name(headers, TENANT_HEADER)
    ruled = policy.tenants.get(tenant, "") if tenant else ""
    if asked and ruled and asked != ruled:
        raise RequestError(
            f"{RESIDENCY_HEADER}: {asked}: requests of tenant {tenant} stay in {ruled}",
            reason=Reason.RESIDENCY,
        )
    return asked or ruled


def _name(headers: Mapping[str, str], header: str) -> str:
    value = headers.get(header, "").strip()
    if header in headers:
        try:
            check_name(header, value)
        except ConfigError as error:
            raise RequestError(str(error)) from None
    return value
