"""The spans of one request: the gateway's own, its attempts, their legs, and the transfers."""

import time
from dataclasses import dataclass, replace

from prfaas.records import NodeRecord
from prfaas.routing import Decision
from prfaas_gateway.leg import Answer, Leg, LegFailure
from prfaas_gateway.spans import Span, SpanKind


class LegSpan:
    """Follows one leg: ends with it, and notes when its answer began."""

    def __init__(self, span: Span) -> None:
        self.span = span

    def note(self, outcome: Answer | LegFailure) -> None:
        """Note how the leg went: its answer has begun, or it failed."""
        if isinstance(outcome, LegFailure):
            self.span.error = f"{outcome.kind}: {outcome.message}"
            return
        self.span.events.append(("answer begins", time.time()))
        self.span.attributes["http.response.status_code"] = outcome.status

    def end(self) -> None:
        """Note that the leg is over."""
        self.span.end_s = time.time()


@dataclass(frozen=True, slots=True)
class Sent:
    """What an attempt was to send: the agent of `prefill` knows how that went."""

    attempt: Span
    prefill: NodeRecord
    decode: NodeRecord
    room: int


class RequestSpans:
    """One request's spans; `root` is the gateway's. Nothing leaves before `finish`."""

    def __init__(self, root: Span) -> None:
        self.root = root
        self.sent: list[Sent] = []
        self._spans = [root]
        self._attempt: Span | None = None

    def legs(
        self, legs: tuple[Leg, Leg], decision: Decision, *, room: int, number: int
    ) -> tuple[Leg, Leg]:
        """Begin an attempt: return its legs with a span each, which engines hear of."""
        now_s = time.time()
        if self._attempt is not None:
            self._attempt.end_s = now_s
        self._attempt = attempt = self.root.child(f"attempt {number}", SpanKind.INTERNAL, now_s)
        attempt.attributes |= {
            "prfaas.route": str(decision.route),
            "prfaas.reason": str(decision.reason),
            "prfaas.prefix_hit_tokens": decision.prefix_tokens,
            "prfaas.room": f"{room:016x}",
        }
        self._spans.append(attempt)
        self.sent.append(Sent(attempt, decision.prefill, decision.decode, room))
        prefill, decode = (self._leg(leg, attempt, now_s) for leg in legs)
        return prefill, decode

    def _leg(self, leg: Leg, attempt: Span, now_s: float) -> Leg:
        span = attempt.child(str(leg.node.role), SpanKind.CLIENT, now_s)
        span.attributes |= {
            "prfaas.node": leg.node.name,
            "prfaas.region": leg.node.region,
            "url.full": leg.node.url + leg.path,
        }
        self._spans.append(span)
        headers = {**leg.headers, "traceparent": span.traceparent}
        return replace(leg, headers=headers, span=LegSpan(span))

    def finish(self) -> list[Span]:
        """End what is not over yet, and return all spans."""
        now_s = time.time()
        if self._attempt is not None and self.root.end_s:
            self._attempt.end_s = self.root.end_s
        for span in self._spans:
            span.end_s = span.end_s or now_s
        return self._spans


def transfer_span(sent: Sent, told: dict[str, object]) -> Span | None:
    """Return the span of a transfer from what the sender's agent tells; None if that is nothing."""
    times_s = [told.get(name) for name in ("opened_at_s", "ended_at_s")]
    if not all(isinstance(at_s, int | float) and at_s > 0 for at_s in times_s):
        return None
    opened_s, ended_s = (float(at_s) for at_s in times_s if isinstance(at_s, int | float))
    span = sent.attempt.child("transfer", SpanKind.INTERNAL, opened_s)
    span.end_s, span.error = ended_s, str(told.get("reason") or "")
    first_s, size = told.get("first_byte_at_s"), told.get("bytes")
    if isinstance(first_s, int | float):
        span.events.append(("first byte", float(first_s)))
    span.attributes |= {
        "prfaas.from": f"{sent.prefill.region}/{sent.prefill.name}",
        "prfaas.to": f"{sent.decode.region}/{sent.decode.name}",
        "prfaas.bytes": size if isinstance(size, int) else 0,
    }
    return span
