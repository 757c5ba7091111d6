"""How many requests with long bodies and prompts a gateway serves at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from prfaas.reasons import Reason
from prfaas_gateway.errors import ServiceError
from prfaas_gateway.gateway import Gateway


@contextmanager
def admitted(gateway: Gateway) -> Iterator[None]:
    """Count a request while it is served.

    Raises:
        ServiceError: too many are served already.
    """
    if gateway.active_requests >= gateway.section.max_concurrent_requests:
        raise ServiceError(
            Reason.OVERLOADED, f"{gateway.active_requests} requests are being served already"
        )
    gateway.active_requests += 1
    gateway.metrics.in_flight.set(gateway.active_requests)
    try:
        yield
    finally:
        gateway.active_requests -= 1
        gateway.metrics.in_flight.set(gateway.active_requests)
