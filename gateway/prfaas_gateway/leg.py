"""One leg of an attempt: an HTTP request to one engine."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import aiohttp

from prfaas.records import NodeRecord
from prfaas_gateway.fleet import Fleet
from prfaas_gateway.verdict import find_abort, find_abort_in_events

if TYPE_CHECKING:
    from prfaas_gateway.request_spans import LegSpan

logger = logging.getLogger(__name__)

_FIRST_EVENT_MAX_BYTES = 4 << 20
_ERROR_BODY_MAX_BYTES = 64 << 10
MAX_ANSWER_BYTES = 256 << 20
"""Of an answer that is no stream: ten thousand tokens with 128 log probabilities each have less."""
_ABORT_TIMEOUT_S = 1.0

_OVERLOADED_CODE = 503
"""What SGLang says when its queue is full."""


class FailureKind(StrEnum):
    """How a leg failed."""

    UNREACHABLE = "unreachable"
    ENGINE_ERROR = "engine_error"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class LegFailure:
    """A leg that did not do its part; the attempt is lost."""

    node: NodeRecord
    kind: FailureKind
    message: str

    def __str__(self) -> str:
        return f"{self.node.role} leg at {self.node.name}: {self.kind}: {self.message}"


class StreamBroken(Exception):  # noqa: N818 - what happened, not an error class of ours
    """The decode node went away in the middle of its answer."""

    def __init__(self, node: NodeRecord, text: str) -> None:
        super().__init__(text)
        self.node = node


@dataclass(slots=True)
class Answer:
    """What an engine answered: all of it in `first`, or the first event with more to come.

    Close it in any case; closing an unfinished one closes its connection, which makes the engine
    abort the request.
    """

    node: NodeRecord
    status: int
    content_type: str
    first: bytes
    response: aiohttp.ClientResponse | None = None
    resources: ExitStack = field(default_factory=ExitStack)

    async def parts(self) -> AsyncGenerator[bytes]:
        """Yield `first` and what follows, unchanged, as it comes.

        Raises:
            StreamBroken: the answer ends before its end.
        """
        yield self.first
        if self.response is None:
            return
        try:
            async for chunk in self.response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise StreamBroken(self.node, str(error) or type(error).__name__) from None

    def close(self) -> None:
        """Give back the connection, or cut it where the answer is unfinished."""
        self.resources.close()


@dataclass(frozen=True, slots=True)
class Leg:
    """What to send where. `rid` is how the engine knows this attempt; `backlog_tokens` is what the
    leg makes the node prefill."""

    node: NodeRecord
    path: str
    rid: str
    body: bytes
    backlog_tokens: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    span: "LegSpan | None" = None


class LegRunner:
    """Sends legs. A leg never raises what an engine did: it returns a `LegFailure`.

    `tls` gives the newest context for engines whose URL is https; a leg to another one stays plain.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        fleet: Fleet,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._session = session
        self._fleet = fleet
        self._tls = tls

    async def run_prefill(self, leg: Leg, deadline_s: float) -> Answer | LegFailure | None:
        """Send the prefill leg and drop its answer: None; an `Answer` is a client error."""
        with self._fleet.prefilling(leg.node, leg.backlog_tokens) as succeed:
            try:
                async with asyncio.timeout_at(deadline_s):
                    answer = await self._open(leg, stream=False)
            except TimeoutError:
                return LegFailure(leg.node, FailureKind.TIMEOUT, "no answer before the deadline")
            if isinstance(answer, LegFailure):
                return answer
            answer.close()
            if answer.status >= 400:
                return answer
            succeed()
            return None

    async def open_decode(self, leg: Leg, *, stream: bool) -> Answer | LegFailure:
        """Send the decode leg and return when its answer has begun: the caller must close it."""
        return await self._open(leg, stream=stream)

    async def abort(self, leg: Leg) -> None:
        """Ask the engine to forget the attempt; best effort, quick, never raises."""
        timeout = aiohttp.ClientTimeout(total=_ABORT_TIMEOUT_S)
        try:
            url = f"{leg.node.url}/abort_request"
            async with self._session.post(
                url, json={"rid": leg.rid}, timeout=timeout, ssl=self._ssl()
            ):
                pass
        except (aiohttp.ClientError, OSError, TimeoutError):
            return

    async def ask(self, url: str, timeout_s: float) -> dict[str, Any]:
        """Return the JSON object that a node answers at a URL, {} for anything else."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(
                url, timeout=timeout, ssl=self._ssl(), allow_redirects=False
            ) as response:
                size = response.content_length
                if response.status != 200 or size is None or size > _ERROR_BODY_MAX_BYTES:
                    return {}
                answer = json.loads(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return {}
        return answer if isinstance(answer, dict) else {}

    def _ssl(self) -> ssl.SSLContext | bool:
        return True if self._tls is None else self._tls()

    async def _open(self, leg: Leg, *, stream: bool) -> Answer | LegFailure:
        outcome = await self._send(leg, stream=stream)
        if leg.span is not None:
            leg.span.note(outcome)
        return outcome

    async def _send(self, leg: Leg, *, stream: bool) -> Answer | LegFailure:
        with ExitStack() as resources:
            if leg.span is not None:
                resources.callback(leg.span.end)
            resources.enter_context(self._fleet.occupy(leg.node, leg.backlog_tokens))
            try:
                response = await self._session.post(
                    leg.node.url + leg.path,
                    data=leg.body,
                    headers={"content-type": "application/json", **leg.headers},
                    allow_redirects=False,
                    ssl=self._ssl(),
                )
                resources.callback(response.close)
                outcome = await self._begin(leg.node, response, stream=stream)
            except (aiohttp.ClientError, OSError) as error:
                self._fleet.note_unreachable(leg.node)
                text = str(error) or type(error).__name__
                return LegFailure(leg.node, FailureKind.UNREACHABLE, text)
            except Exception as error:  # a leg runs in a shared group: a bug must stay its own
                logger.exception("%s leg at %s", leg.node.role, leg.node.name)
                return LegFailure(leg.node, FailureKind.INTERNAL, repr(error))
            self._fleet.note_answered(leg.node)
            if isinstance(outcome, Answer):
                outcome.resources = resources.pop_all()
            return outcome

    async def _begin(
        self, node: NodeRecord, response: aiohttp.ClientResponse, *, stream: bool
    ) -> Answer | LegFailure:
        content_type = response.content_type
        if response.status >= 500 or 300 <= response.status < 400:
            text = await _error_text(response)
            return _engine_failure(node, response.status, f"HTTP {response.status}: {text}")
        if stream and response.status < 300 and content_type == "text/event-stream":
            first = await _first_event(response)
            abort = find_abort_in_events(first)
            answer = Answer(node, response.status, content_type, first, response)
        else:
            whole = await _whole_body(response)
            if whole is None:
                text = f"an answer of more than {MAX_ANSWER_BYTES} bytes"
                return LegFailure(node, FailureKind.ENGINE_ERROR, text)
            first = whole
            abort = find_abort(first) if response.status < 300 else None
            answer = Answer(node, response.status, content_type, first)
        if abort and not abort.is_clients_fault:
            return _engine_failure(node, abort.code, abort.message)
        if stream and not first:
            return LegFailure(node, FailureKind.ENGINE_ERROR, "the stream ended without an event")
        return answer


def _engine_failure(node: NodeRecord, code: int, message: str) -> LegFailure:
    kind = FailureKind.OVERLOADED if code == _OVERLOADED_CODE else FailureKind.ENGINE_ERROR
    return LegFailure(node, kind, message)


async def _whole_body(response: aiohttp.ClientResponse) -> bytes | None:
    """Return an answer that is no stream; None if it is longer than any is."""
    received = bytearray()
    async for chunk in response.content.iter_any():
        received += chunk
        if len(received) > MAX_ANSWER_BYTES:
            return None
    return bytes(received)


async def _first_event(response: aiohttp.ClientResponse) -> bytes:
    """Read at least one whole event; more may have come with it."""
    received = bytearray()
    while b"\n\n" not in received and len(received) < _FIRST_EVENT_MAX_BYTES:
        chunk = await response.content.readany()
        if not chunk:
            break
        received += chunk
    return bytes(received)


async def _error_text(response: aiohttp.ClientResponse) -> str:
    body = await response.content.read(_ERROR_BODY_MAX_BYTES)
    abort = find_abort(body)
    return abort.message if abort else body.decode(errors="replace")[:500]


def build_legs(
    shared: bytes,
    decode_extra: dict[str, Any],
    *,
    path: str,
    prefill: NodeRecord,
    decode: NodeRecord,
    room: int,
    rid: str,
    uncached_tokens: int = 0,
    headers: Mapping[str, str] | None = None,
) -> tuple[Leg, Leg]:
    """Return the prefill leg and the decode leg of one attempt.

    `shared` is a JSON object as text; what the legs add is spliced in, so that a long prompt is
    encoded once.
    """
    meeting = {
        "bootstrap_host": prefill.bootstrap_host,
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": room,
        "rid": rid,
    }
    legs = []
    for node in (prefill, decode):
        is_prefill = node is prefill
        extra = {"stream": False} if is_prefill else decode_extra
        tail = json.dumps({**meeting, **extra}, separators=(",", ":")).encode()
        body = shared[:-1] + b"," + tail[1:]
        backlog_tokens = uncached_tokens if is_prefill else 0
        legs.append(Leg(node, path, rid, body, backlog_tokens, headers or {}))
    return legs[0], legs[1]
