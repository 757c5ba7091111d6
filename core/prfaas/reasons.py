"""Why a request was served the way it was: closed lists.

A word here is at once the label of a metric, the value of the response header `x-prfaas-reason`
(or `x-prfaas-route`) and what tests expect.
"""

from enum import StrEnum


class Route(StrEnum):
    """Where a request's prefill ran."""

    LOCAL = "local"
    OFFLOAD = "offload"
    FALLBACK = "fallback"
    NONE = "none"


class Reason(StrEnum):
    """Why a route was taken, or why there was no answer."""

    # Routes.
    BELOW_THRESHOLD = "below_threshold"
    ABOVE_THRESHOLD = "above_threshold"
    LINK_CONGESTED = "link_congested"
    LINK_CLOSED = "link_closed"
    NO_REMOTE_PREFILL = "no_remote_prefill"
    NO_LOCAL_PREFILL = "no_local_prefill"
    OFFLOAD_FAILED = "offload_failed"
    LOCAL_FAILED = "local_failed"
    # Refusals.
    NO_PREFILL = "no_prefill"
    NO_DECODE = "no_decode"
    INVALID_REQUEST = "invalid_request"
    BODY_TOO_LARGE = "body_too_large"
    MODEL_NOT_FOUND = "model_not_found"
    OVERLOADED = "overloaded"
    FALLBACK_BUDGET = "fallback_budget"
    RESIDENCY = "residency"
    NOT_READY = "not_ready"
    INVALID_API_KEY = "invalid_api_key"
    NOT_ALLOWED = "not_allowed"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    REQUEST_TIMEOUT = "request_timeout"
    # What ends a request that was accepted.
    DECODE_LOST = "decode_lost"
    CLIENT_GONE = "client_gone"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    INTERNAL_ERROR = "internal_error"
