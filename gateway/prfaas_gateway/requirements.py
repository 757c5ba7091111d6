"""Where a request may go: what its headers and its tenant's rule demand."""

from collections.abc import Mapping

from prfaas.api_keys import ANY_TENANT, KeyEntry
from prfaas.errors import ConfigError
from prfaas.names import check_name
from prfaas.reasons import Reason
from prfaas.records import RoutingPolicy
from prfaas_gateway.errors import RequestError

RESIDENCY_HEADER = "x-prfaas-residency"
TENANT_HEADER = "x-prfaas-tenant"


def residency_of(
    headers: Mapping[str, str], policy: RoutingPolicy, key: KeyEntry | None = None
) -> str:
    """Return the label that all nodes of a request must have; empty if it may go anywhere.

    The tenant is that of the key; only without keys, and for a key of any tenant, the header's.

    Raises:
        RequestError: a header is not a name, asks for another place than the tenant's rule, or
            names another tenant than the key's.
    """
    asked = _name(headers, RESIDENCY_HEADER)
    tenant = _tenant(_name(headers, TENANT_HEADER), key)
    ruled = policy.tenants.get(tenant, "") if tenant else ""
    if asked and ruled and asked != ruled:
        raise RequestError(
            f"{RESIDENCY_HEADER}: {asked}: requests of tenant {tenant} stay in {ruled}",
            reason=Reason.RESIDENCY,
        )
    return asked or ruled


def _tenant(named: str, key: KeyEntry | None) -> str:
    if key is None or key.tenant == ANY_TENANT:
        return named
    if named and named != key.tenant:
        whose = f"of tenant {key.tenant}" if key.tenant else "of no tenant"
        raise RequestError(
            f"{TENANT_HEADER}: {named}: this API key is {whose}", reason=Reason.NOT_ALLOWED
        )
    return key.tenant


def _name(headers: Mapping[str, str], header: str) -> str:
    value = headers.get(header, "").strip()
    if header in headers:
        try:
            check_name(header, value)
        except ConfigError as error:
            raise RequestError(str(error)) from None
    return value
