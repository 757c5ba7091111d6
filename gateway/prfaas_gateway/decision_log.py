"""The decisions of late, for people who ask why."""

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from prfaas.reasons import Reason, Route
from prfaas.routing import Decision, Refusal

MAX_DECISIONS = 1000


@dataclass(frozen=True, slots=True)
class Noted:
    """One decision. `at_s` is Unix time; `threshold_tokens` is the policy's, and
    `effective_tokens` that of the link to the prefill's region, None where all stayed here. `move`
    is the verdict on a prefix that another region had more of, empty where none had."""

    at_s: float
    request_id: str
    attempt: int
    route: Route
    reason: Reason
    prompt_tokens: int
    prefix_tokens: int
    threshold_tokens: int
    effective_tokens: dict[str, float | None]
    prefill: str
    decode: str
    residency: str
    move: str = ""


class DecisionLog:
    """Keeps the last decisions of a gateway, first attempts and others; the oldest go."""

    def __init__(self, limit: int = MAX_DECISIONS) -> None:
        self._noted: deque[Noted] = deque(maxlen=limit)

    def note(
        self,
        outcome: Decision | Refusal,
        *,
        request_id: str,
        attempt: int,
        prompt_tokens: int,
        residency: str,
        move: str = "",
        threshold_tokens: int,
        effective_tokens: dict[str, float | None],
    ) -> None:
        """Keep one decision, or that there was none."""
        decision = outcome if isinstance(outcome, Decision) else None
        self._noted.append(
            Noted(
                at_s=time.time(),
                request_id=request_id,
                attempt=attempt,
                route=decision.route if decision else Route.NONE,
                reason=outcome.reason,
                prompt_tokens=prompt_tokens,
                prefix_tokens=decision.prefix_tokens if decision else 0,
                threshold_tokens=threshold_tokens,
                effective_tokens=effective_tokens,
                prefill=decision.prefill.name if decision else "",
                decode=decision.decode.name if decision else "",
                residency=residency,
                move=move,
            )
        )

    def recent(
        self, limit: int, *, reason: Reason | None = None, request_id: str = ""
    ) -> list[dict[str, Any]]:
        """Return the last ones as JSON values, the newest first."""
        found: list[dict[str, Any]] = []
        for noted in reversed(self._noted):
            if len(found) >= limit:
                break
            wanted = reason is None or noted.reason is reason
            if wanted and request_id in ("", noted.request_id):
                found.append(asdict(noted))
        return found
