"""Serve one request by one or more attempts: two legs each, others where the first failed."""

import asyncio
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prfaas.blocks import HashedPrompt
from prfaas.reasons import Reason, Route
from prfaas.records import NodeRecord
from prfaas.routing import Decision, Refusal, RouteRequest, decide, decide_retry, patience_s
from prfaas_gateway.decision_log import DecisionLog
from prfaas_gateway.errors import ServiceError
from prfaas_gateway.fleet import Fleet
from prfaas_gateway.inference import Api, InferenceRequest
from prfaas_gateway.leg import Answer, FailureKind, Leg, LegFailure, LegRunner, build_legs
from prfaas_gateway.leg_tasks import LegTasks
from prfaas_gateway.metrics import Metrics
from prfaas_gateway.prefix_moves import PrefixMoves, Salted
from prfaas_gateway.trace_context import TraceContext

if TYPE_CHECKING:
    from prfaas_gateway.request_spans import RequestSpans

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3

_MAX_ROOM = (1 << 63) - 1
"""Rooms are positive signed 64-bit numbers; to SGLang 0 means that there is none."""

_LOCAL_RETRY_KINDS = frozenset({FailureKind.UNREACHABLE, FailureKind.ENGINE_ERROR})
"""What may go better elsewhere. Not a full queue: a retry would carry the load to others."""


@dataclass(slots=True)
class Trace:
    """What became of one request so far; the handler's headers and metrics are made from it."""

    request_id: str
    started_s: float
    prompt_tokens: int = 0
    decision: Decision | None = None
    attempts: int = 0
    error: Reason | None = None
    context: TraceContext | None = None
    spans: "RequestSpans | None" = None

    @property
    def route(self) -> Route:
        """The route of the last attempt."""
        return self.decision.route if self.decision else Route.NONE

    @property
    def reason(self) -> Reason | None:
        """The word for what became of the request; None while nothing has."""
        return self.error or (self.decision.reason if self.decision else None)


@dataclass(frozen=True, slots=True)
class Job:
    """One request, ready to be dispatched. `deadline_s` is on the event loop's clock."""

    request: InferenceRequest
    model_id: str
    prompt: HashedPrompt
    deadline_s: float
    trace: Trace
    residency: str = ""

    @property
    def route_request(self) -> RouteRequest:
        """What routing needs of it."""
        prompt_tokens = self.prompt.num_tokens
        output_tokens = self.request.max_output_tokens
        total_tokens = prompt_tokens + (1 if output_tokens is None else output_tokens)
        return RouteRequest(self.model_id, prompt_tokens, total_tokens, self.residency)


@dataclass(slots=True)
class _Attempt:
    """The two running legs of an attempt."""

    legs: tuple[Leg, Leg]
    prefill: "asyncio.Task[Answer | LegFailure | None]"
    decode: "asyncio.Task[Answer | LegFailure]"


class Dispatcher:
    """Runs attempts. Its legs live in `tasks`, so that a prefill leg may outlast its request."""

    def __init__(
        self,
        fleet: Fleet,
        runner: LegRunner,
        metrics: Metrics,
        tasks: LegTasks,
        moves: PrefixMoves,
    ) -> None:
        self.moves = moves
        self._fleet = fleet
        self.runner = runner
        self._metrics = metrics
        self._tasks = tasks
        self.decisions = DecisionLog()

    async def open(self, job: Job) -> Answer:
        """Return an answer that has begun; the caller must close it. Fills in the job's trace.

        Cancelling this closes the connections of both legs.

        Raises:
            ServiceError: no nodes, or all attempts failed.
        """
        first, move = await self._decide(job)
        self._note(job, first, move=move)
        decision = self._accept(first)
        avoid: frozenset[str] = frozenset()
        while True:
            job.trace.decision = decision
            job.trace.attempts += 1
            outcome = await self._attempt(job, decision)
            if isinstance(outcome, Answer):
                self._metrics.note_attempt(decision.route, "answered")
                return outcome
            self._metrics.note_attempt(decision.route, outcome.kind)
            logger.warning("%s: %s failed: %s", job.trace.request_id, decision.route, outcome)
            avoid |= _nodes_to_avoid(decision, outcome)
            decision = self._next(job, decision, outcome, avoid)

    async def _decide(self, job: Job) -> tuple[Decision | Refusal, str]:
        """Decide a first attempt; say what was done about a prefix that another region has.

        A prefix that has come is in its new pool, and one that has not does not count: after a
        move, or none, each region is judged by what it has.
        """
        request = job.route_request
        first = decide(request, self._fleet.snapshot(job.prompt), _now_s())
        if not isinstance(first, Decision) or first.move is None:
            return first, ""
        verdict = await self.moves.prepare(first, Salted.of(job.prompt, job.request.salt))
        snapshot = self._fleet.snapshot(job.prompt, is_scarce=True)
        return decide(request, snapshot, _now_s()), verdict

    def _next(
        self, job: Job, failed: Decision, failure: LegFailure, avoid: frozenset[str]
    ) -> Decision:
        """Return how to go on after a failed attempt.

        Raises:
            ServiceError: not at all.
        """
        was_offload = failed.route is Route.OFFLOAD
        reason = Reason.OFFLOAD_FAILED if was_offload else Reason.LOCAL_FAILED
        if failure.kind is FailureKind.OVERLOADED:
            reason = Reason.OVERLOADED
        hopeless = ServiceError(reason, str(failure))
        if job.trace.attempts >= MAX_ATTEMPTS:
            raise hopeless
        if not was_offload and failure.kind not in _LOCAL_RETRY_KINDS:
            raise hopeless
        snapshot = self._fleet.snapshot(job.prompt)
        retry = decide_retry(job.route_request, snapshot, _now_s(), failed=failed, avoid=avoid)
        self._note(job, retry)
        if isinstance(retry, Refusal):
            raise _refusal(retry) if retry.reason is Reason.FALLBACK_BUDGET else hopeless
        if retry.route is Route.FALLBACK:
            self._metrics.note_fallback(failure)
        return retry

    def _note(self, job: Job, outcome: Decision | Refusal, *, move: str = "") -> None:
        self.decisions.note(
            outcome,
            request_id=job.trace.request_id,
            attempt=job.trace.attempts + 1,
            prompt_tokens=job.prompt.num_tokens,
            residency=job.residency,
            move=move,
            threshold_tokens=self._fleet.policy.threshold_tokens,
            effective_tokens=self._fleet.effective_tokens(),
        )

    def _accept(self, decision: Decision | Refusal) -> Decision:
        if isinstance(decision, Decision):
            return decision
        raise _refusal(decision)

    async def _attempt(self, job: Job, decision: Decision) -> Answer | LegFailure:
        limit_s = self._prefill_limit_s(job, decision)
        attempt = self._start(job, decision)
        outcome: Answer | LegFailure | None = None
        try:
            outcome = await self._first_outcome(attempt, limit_s)
        finally:
            if not isinstance(outcome, Answer) or outcome.status >= 400:
                self._cancel(attempt, keep=outcome)
        if isinstance(outcome, Answer) and outcome.status < 400:
            self._fleet.note_prefilled(decision.prefill, job.prompt)
        return outcome

    def _start(self, job: Job, decision: Decision) -> _Attempt:
        room = secrets.randbelow(_MAX_ROOM) + 1
        legs = build_legs(
            job.request.body,
            job.request.decode_body | _name_of_model(job),
            path=job.request.api,
            prefill=decision.prefill,
            decode=decision.decode,
            room=room,
            rid=f"{job.trace.request_id}.{room:016x}",
            uncached_tokens=job.prompt.num_tokens - decision.prefix_tokens,
            headers=_headers(job.trace),
        )
        if job.trace.spans is not None:
            legs = job.trace.spans.legs(legs, decision, room=room, number=job.trace.attempts)
        prefill = self.runner.run_prefill(legs[0], job.deadline_s)
        decode = self.runner.open_decode(legs[1], stream=job.request.stream)
        return _Attempt(legs, self._tasks.start(prefill), self._tasks.start(decode))

    def _prefill_limit_s(self, job: Job, decision: Decision) -> float | None:
        """Return how long to wait for the prefill: an offload must leave time to fall back."""
        if decision.route is not Route.OFFLOAD:
            return None
        tokens = job.prompt.num_tokens - decision.prefix_tokens
        expected_s = self._fleet.expected_prefill_s(decision.prefill, tokens)
        return patience_s(job.deadline_s - _now_s(), expected_s)

    async def _first_outcome(self, attempt: _Attempt, limit_s: float | None) -> Answer | LegFailure:
        """Wait for the decode leg, or for what makes waiting for it vain.

        Once the decode leg has begun to answer, whatever becomes of the prefill leg is no matter.
        """
        both = {attempt.prefill, attempt.decode}
        done, _ = await asyncio.wait(both, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            message = f"prefill was not done after {limit_s:.1f} s"
            return LegFailure(attempt.legs[0].node, FailureKind.TIMEOUT, message)
        if not attempt.decode.done():
            verdict = attempt.prefill.result()
            if verdict is not None:
                return verdict
            await asyncio.wait({attempt.decode})
        return attempt.decode.result()

    def _cancel(self, attempt: _Attempt, *, keep: Answer | LegFailure | None) -> None:
        """Close the connections of both legs, and tell the engines."""
        for task in (attempt.prefill, attempt.decode):
            if not task.done():
                task.cancel()
            elif not task.cancelled():
                result = task.result()
                if isinstance(result, Answer) and result is not keep:
                    result.close()
        for leg in attempt.legs:
            if not _is_unreachable(keep, leg.node):
                self._tasks.start(self.runner.abort(leg))


def _headers(trace: Trace) -> dict[str, str]:
    """Return by what engines name the request in their logs and traces."""
    context = trace.context.headers() if trace.context else {}
    return {"x-request-id": trace.request_id, **context}


def _refusal(refusal: Refusal) -> ServiceError:
    if refusal.reason is Reason.FALLBACK_BUDGET:
        message = "the other regions cannot be used now, and the local prefill nodes are full"
    elif refusal.reason is Reason.RESIDENCY:
        message = "no node with the label that the request must stay at can take it now"
    else:
        wanted = "decode" if refusal.reason is Reason.NO_DECODE else "prefill"
        message = f"no {wanted} node can take this request now"
    return ServiceError(refusal.reason, message, retry_after_s=refusal.retry_after_s)


def _name_of_model(job: Job) -> dict[str, str]:
    """Return what makes the answer name the model where the request did not."""
    if job.request.model or job.request.api is Api.GENERATE:
        return {}
    return {"model": job.model_id}


def _is_unreachable(outcome: Answer | LegFailure | None, node: NodeRecord) -> bool:
    if not isinstance(outcome, LegFailure):
        return False
    return outcome.kind is FailureKind.UNREACHABLE and outcome.node is node


def _nodes_to_avoid(decision: Decision, failure: LegFailure) -> frozenset[str]:
    """Return the nodes not to ask again for this request.

    A failed offload always gives up its prefill node. So does an engine error on either leg: it is
    the decode leg that tells of a prefill that died. An unreachable node is given up, whichever.
    """
    names = set()
    if decision.route is Route.OFFLOAD or failure.kind is FailureKind.ENGINE_ERROR:
        names.add(decision.prefill.name)
    if failure.kind is FailureKind.UNREACHABLE:
        names.add(failure.node.name)
    return frozenset(names)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
