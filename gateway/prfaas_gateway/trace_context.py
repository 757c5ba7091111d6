"""W3C Trace Context of one request: passed on to engines as it came, or made."""

import re
import secrets
from dataclasses import dataclass
from typing import Self

from multidict import CIMultiDictProxy

# Source: https://www.w3.org/TR/trace-context/, version 00, section 3.2.
_PARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)
_MAX_PARENT_LENGTH = 256
_MAX_STATE_LENGTH = 512
_STATE = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The headers `traceparent` and `tracestate`."""

    traceparent: str
    tracestate: str = ""

    @classmethod
    def of(cls, headers: CIMultiDictProxy[str]) -> Self:
        """Return what the client sent where it is valid, else a new trace of ours."""
        parents = headers.getall("traceparent", [])
        if len(parents) != 1 or not _is_parent(parents[0]):
            return cls(f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01")
        state = ",".join(headers.getall("tracestate", []))
        usable = len(state) <= _MAX_STATE_LENGTH and _STATE.fullmatch(state)
        return cls(parents[0], state if usable else "")

    def headers(self) -> dict[str, str]:
        """Return the headers to send."""
        sent = {"traceparent": self.traceparent}
        return sent | {"tracestate": self.tracestate} if self.tracestate else sent


def _is_parent(text: str) -> bool:
    found = _PARENT.fullmatch(text) if len(text) <= _MAX_PARENT_LENGTH else None
    # Only a version that we do not know may say more.
    return found is not None and (found[1] != "00" or found[2] is None)
