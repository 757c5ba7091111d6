"""Spans of OpenTelemetry, and the form in which collectors take them. Pure.

Source: OTLP 1.5, `opentelemetry/proto/trace/v1/trace.proto` in its JSON form.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

Value = str | int | float | bool

_MAX_TEXT = 512
_OK, _ERROR = 1, 2


class SpanKind(IntEnum):
    """Whose side of a call a span is, by its number in OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


@dataclass(slots=True)
class Span:
    """One stretch of time of a trace. Times are Unix times in seconds; `end_s` 0: not over yet.

    `error` is what went wrong, empty if nothing did. Ids are lower-case hexadecimal digits.
    """

    name: str
    trace_id: str
    parent_id: str
    kind: SpanKind
    start_s: float
    end_s: float = 0.0
    error: str = ""
    attributes: dict[str, Value] = field(default_factory=dict)
    events: list[tuple[str, float]] = field(default_factory=list)
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))

    def child(self, name: str, kind: SpanKind, start_s: float) -> "Span":
        """Return a new span below this one."""
        return Span(name, self.trace_id, self.span_id, kind, start_s)

    @property
    def traceparent(self) -> str:
        """The header that makes what another server does a child of this span."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    def to_json(self) -> dict[str, Any]:
        """Return the span as OTLP has it."""
        status: dict[str, Any] = {"code": _ERROR if self.error else _OK}
        if self.error:
            status["message"] = self.error[:_MAX_TEXT]
        parent = {"parentSpanId": self.parent_id} if self.parent_id else {}
        return {
            "traceId": self.trace_id,
            "spanId": self.span_id,
            **parent,
            "name": self.name,
            "kind": int(self.kind),
            "startTimeUnixNano": _nanoseconds(self.start_s),
            "endTimeUnixNano": _nanoseconds(max(self.end_s, self.start_s)),
            "attributes": _attributes(self.attributes),
            "events": [{"name": n, "timeUnixNano": _nanoseconds(at)} for n, at in self.events],
            "status": status,
        }


def export_request(spans: Sequence[Span], resource: Mapping[str, Value]) -> dict[str, Any]:
    """Return the body of a POST to a collector's `/v1/traces`."""
    scope = {"scope": {"name": "prfaas_gateway"}, "spans": [span.to_json() for span in spans]}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]},
        ]
    }


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    """Return a value with its type; 64-bit integers are texts in JSON.

    >>> _value(7), _value(True)
    ({'intValue': '7'}, {'boolValue': True})
    """
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": value[:_MAX_TEXT]}


def _nanoseconds(seconds: float) -> str:
    return str(round(seconds * 1e9))
