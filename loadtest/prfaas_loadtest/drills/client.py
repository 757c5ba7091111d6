"""One request to the gateway, and what its client sees of the answer."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from prfaas_loadtest.drills.history import Outcome, Record
from prfaas_loadtest.drills.plan import PlannedRequest

_PATH = "/generate"
_MOST_BYTES = 16 << 20


@dataclass(slots=True)
class _Seen:
    """What has come of an answer so far."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    first_s: float = 0.0
    tokens: list[int] = field(default_factory=list)
    ends: int = 0
    is_done: bool = False
    error: str = ""
    reason: str = ""


class BadAnswerError(Exception):
    """An answer that is none: not JSON, too long, tokens that change."""


class Client:
    """Sends planned requests. Each has a connection of its own, as from a client of its own.

    `patience_s` is how long a request may take before it counts as never answered; `salt` keeps the
    caches of this run apart from those of others. `headers` are sent with every request, `tls` is
    for https.
    """

    def __init__(
        self,
        url: str,
        *,
        patience_s: float,
        salt: str,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url
        self._headers = dict(headers or {})
        self._tls = tls
        self._patience_s = patience_s
        self._salt = salt
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Client":
        connector = aiohttp.TCPConnector(
            limit=0, force_close=True, ssl=True if self._tls is None else self._tls
        )
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(self, request: PlannedRequest, *, began_s: float, sent_s: float) -> Record:
        """Send a request and return what became of it; never raises for what the site does.

        `began_s` is the load's begin on the loop's clock.
        """
        seen = _Seen()
        limit_s = request.abandon_after_s or self._patience_s
        try:
            async with asyncio.timeout(limit_s):
                outcome, detail = await self._exchange(request, seen, began_s)
        except TimeoutError:
            outcome = Outcome.ABANDONED if request.abandon_after_s else Outcome.SILENT
            detail = f"hung up after {limit_s:g} s"
        return Record(
            number=request.number,
            sent_s=round(sent_s, 4),
            end_s=round(_now_s() - began_s, 4),
            outcome=outcome,
            is_long=request.is_long,
            is_stream=request.is_stream,
            prompt_tokens=request.prompt_tokens,
            wanted_tokens=request.output_tokens,
            first_s=round(seen.first_s, 4),
            status=seen.status,
            route=seen.headers.get("x-prfaas-route", ""),
            reason=seen.reason or seen.headers.get("x-prfaas-reason", ""),
            prefill=seen.headers.get("x-prfaas-prefill", ""),
            tokens=tuple(seen.tokens),
            ends=seen.ends,
            detail=detail[:300],
        )

    async def _exchange(
        self, request: PlannedRequest, seen: _Seen, began_s: float
    ) -> tuple[Outcome, str]:
        assert self._session is not None
        sampling = {"temperature": 0, "max_new_tokens": request.output_tokens, "ignore_eos": True}
        body = {
            "input_ids": await asyncio.to_thread(request.prompt),
            "sampling_params": sampling,
            "stream": request.is_stream,
            "extra_key": self._salt,
        }
        headers = {**self._headers, "x-request-id": f"drill-{self._salt}-{request.number}"}
        try:
            async with self._session.post(self._url + _PATH, json=body, headers=headers) as answer:
                seen.status = answer.status
                seen.headers = {name.lower(): value for name, value in answer.headers.items()}
                await _read(answer, request, seen, began_s)
        except aiohttp.ClientConnectorError as error:
            return Outcome.REFUSED, str(error)
        except (aiohttp.ClientError, OSError) as error:
            return Outcome.CUT, str(error) or type(error).__name__
        except BadAnswerError as error:
            return Outcome.FAILED, f"not an answer: {error}"
        return _judged(request, seen)


def _judged(request: PlannedRequest, seen: _Seen) -> tuple[Outcome, str]:
    if seen.error or seen.status != 200:
        return Outcome.FAILED, seen.error
    whole = seen.ends > 0 and (seen.is_done or not request.is_stream)
    return (Outcome.ANSWERED, "") if whole else (Outcome.CUT, "the stream ended before its end")


async def _read(
    answer: aiohttp.ClientResponse, request: PlannedRequest, seen: _Seen, began_s: float
) -> None:
    if not answer.content_type.startswith("text/event-stream"):
        _take(await answer.read(), seen, began_s)
        return
    pending, total = b"", 0
    async for chunk in answer.content.iter_any():
        pending += chunk
        total += len(chunk)
        if total > _MOST_BYTES:
            raise BadAnswerError(f"request {request.number}: more than {_MOST_BYTES} bytes")
        while b"\n\n" in pending:
            event, pending = pending.split(b"\n\n", 1)
            _take_event(event, seen, began_s)


def _take_event(event: bytes, seen: _Seen, began_s: float) -> None:
    data = event.removeprefix(b"data:").strip()
    if data == b"[DONE]":
        seen.is_done = True
    elif data:
        _take(data, seen, began_s)


def _take(data: bytes, seen: _Seen, began_s: float) -> None:
    """Note what a body or an event says; every event of a stream holds the whole output so far."""
    try:
        value = json.loads(data)
    except ValueError:
        raise BadAnswerError(f"{data[:100]!r}") from None
    if not isinstance(value, dict):
        raise BadAnswerError(f"{data[:100]!r}")
    error = value.get("error")
    if error is not None:
        seen.error = str(error.get("message") if isinstance(error, dict) else error)
        seen.reason = str(error.get("code", "")) if isinstance(error, dict) else ""
        return
    _take_tokens(value, seen, began_s)


def _take_tokens(value: dict[str, Any], seen: _Seen, began_s: float) -> None:
    tokens = value.get("output_ids")
    if not isinstance(tokens, list) or tokens[: len(seen.tokens)] != seen.tokens:
        raise BadAnswerError("output_ids that are none, or not those said before")
    seen.tokens = tokens
    if tokens and not seen.first_s:
        seen.first_s = _now_s() - began_s
    meta = value.get("meta_info")
    finish = meta.get("finish_reason") if isinstance(meta, dict) else None
    if not isinstance(finish, dict):
        return
    if finish.get("type") == "abort":
        seen.error = str(finish.get("message") or "aborted")
        return
    seen.ends += 1


def _now_s() -> float:
    return asyncio.get_running_loop().time()
