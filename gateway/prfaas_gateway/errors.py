"""Errors of the gateway. Each carries a Reason; which HTTP status that is, the handlers say.

PrfaasError
└── GatewayError          a request that gets no answer from an engine
    ├── RequestError      the client must change the request
    └── ServiceError      the same request may succeed later or elsewhere
"""

from prfaas.errors import PrfaasError
from prfaas.reasons import Reason


class GatewayError(PrfaasError):
    """A request that gets no answer from an engine; `reason` is the word for it."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RequestError(GatewayError):
    """The client must change the request; `param` names the field that is wrong."""

    def __init__(
        self, message: str, *, reason: Reason = Reason.INVALID_REQUEST, param: str | None = None
    ) -> None:
        super().__init__(reason, message)
        self.param = param


class ServiceError(GatewayError):
    """The same request may succeed later or elsewhere; `retry_after_s` where it is known when."""

    def __init__(self, reason: Reason, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(reason, message)
        self.retry_after_s = retry_after_s
