"""Sends requests when they are due, whatever became of those before, and keeps what came of each.

Runs on gevent, in a process of its own (see `load`).
"""

import heapq
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gevent
import gevent.event
import gevent.pool
import gevent.ssl
import numpy as np
from geventhttpclient import HTTPClient

from prfaas.errors import ConfigError
from prfaas_loadtest.campaigns.asking import AnswerReader, body_of, refusal
from prfaas_loadtest.campaigns.job import Job
from prfaas_loadtest.campaigns.sample import Outcome, Sample
from prfaas_loadtest.campaigns.stream_lines import StreamLines
from prfaas_loadtest.workloads.schedule import Request
from prfaas_loadtest.workloads.text_prompts import TextPrompts

_LEAD_S = 0.25
"""Wall seconds before a request is due in which its body is made."""
_CONNECT_TIMEOUT_S = 10.0
_BLOCK_BYTES = 1 << 16
_MAX_REFUSAL_BYTES = 1 << 16
_HTTP_OK = 200
_END = "-----END CERTIFICATE-----"


@dataclass(slots=True)
class _Try:
    """One request under way; what a sample is made of. Seconds of the clock since the begin."""

    request: Request
    due_s: float
    sent_s: float = -1.0
    status: int = 0
    error: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    reader: AnswerReader | None = None

    def sample(self, outcome: Outcome, now_s: float) -> Sample:
        at_s = self.reader.at_s if self.reader else []
        answered = outcome in (Outcome.ANSWERED, Outcome.WRONG)
        return Sample(
            index=self.request.index,
            tenant=self.request.tenant,
            outcome=outcome,
            due_s=self.due_s,
            sent_s=self.sent_s,
            first_s=at_s[0] if at_s else -1.0,
            last_s=at_s[-1] if answered and at_s else now_s,
            prompt_tokens=self.request.prompt_tokens,
            told_prompt_tokens=_whole(self.headers.get("x-prfaas-prompt-tokens", "")),
            wanted=self.request.output_tokens,
            tokens=self.reader.output_tokens if self.reader else 0,
            status=self.status,
            error=self.error[:300],
            route=self.headers.get("x-prfaas-route", ""),
            reason=self.headers.get("x-prfaas-reason", ""),
            prefill=self.headers.get("x-prfaas-prefill", ""),
            request_id=self.headers.get("x-request-id", ""),
            gaps_s=tuple(np.round(np.diff(at_s), 6).tolist()),
        )


class Sender:
    """Sends one worker's share; `on_sample` is called once for each request that was due."""

    def __init__(
        self, job: Job, requests: Sequence[Request], on_sample: Callable[[Sample], None]
    ) -> None:
        self._job = job
        self._prompts = job.prompts()
        self._on_sample = on_sample
        self._due: list[tuple[float, int, Request]] = []
        self._followers: dict[int, list[Request]] = defaultdict(list)
        for request in requests:
            if request.follows >= 0:
                self._followers[request.follows].append(request)
            else:
                heapq.heappush(self._due, (request.at_s * job.dilation, request.index, request))
        self._tries = gevent.pool.Group()
        self._in_flight = 0
        self._changed = gevent.event.Event()
        self._stopped = False
        self._begin_s = 0.0
        self._client, self._headers = _client(job), _headers(job)

    @property
    def in_flight(self) -> int:
        """Requests that are sent and not answered."""
        return self._in_flight

    def run(self, begin_s: float) -> None:
        """Send all, from `begin_s` of the monotonic clock on; return when all are over."""
        self._begin_s = begin_s
        while not self._stopped and (self._due or len(self._tries)):
            self._changed.clear()
            wait_s = 1.0
            if self._due:
                wait_s = self._due[0][0] - _LEAD_S - self._now_s()
                if wait_s <= 0:
                    due_s, _, request = heapq.heappop(self._due)
                    self._tries.spawn(self._one, request, due_s)
                    continue
            self._changed.wait(min(wait_s, 1.0))
        if self._stopped:
            self._tries.kill(block=True, timeout=5.0)
        self._client.close()

    def stop(self) -> None:
        """End: what is under way becomes open, what was not due yet is left out."""
        self._stopped = True
        self._changed.set()

    def _now_s(self) -> float:
        return time.monotonic() - self._begin_s

    def _one(self, request: Request, due_s: float) -> None:
        """Send one request when it is due, and follow its answer."""
        body = self._body(request)
        gevent.sleep(max(0.0, due_s - self._now_s()))
        one = _Try(request, due_s)
        if self._in_flight >= self._job.max_in_flight:
            one.error = f"{self._in_flight} requests are in flight, the campaign's max_in_flight"
            self._end(one, Outcome.UNSENT)
            return
        self._in_flight += 1
        limit_s = due_s + self._job.timeout_s * self._job.dilation - self._now_s()
        timeout = gevent.Timeout(max(limit_s, 0.001))
        outcome = Outcome.OPEN
        try:
            timeout.start()
            outcome = self._ask(one, body)
        except gevent.Timeout as expired:
            if expired is not timeout:
                raise
            outcome, one.error = Outcome.LATE, f"no answer in {self._job.timeout_s:g} s"
        except gevent.GreenletExit:
            outcome = Outcome.OPEN
        except Exception as error:  # the outermost frame of one request: it must end as a sample
            outcome, one.error = Outcome.BROKEN, f"{type(error).__name__}: {error}"
        finally:
            timeout.close()
            self._in_flight -= 1
            self._end(one, outcome)

    def _body(self, request: Request) -> bytes:
        prompts = self._prompts
        text = isinstance(prompts, TextPrompts)
        prompt: Any = prompts.text(request) if text else prompts.ids(request)  # type: ignore[union-attr]
        return body_of(self._job.api, prompt, request.output_tokens, self._job.model)

    def _ask(self, one: _Try, body: bytes) -> Outcome:
        one.sent_s = self._now_s()
        response = self._client.request("POST", self._job.api.path, body, self._headers)
        try:
            one.status = int(response.status_code)
            one.headers = {str(name).lower(): str(value) for name, value in response.headers}
            if one.status != _HTTP_OK:
                one.error = refusal(bytes(response.read(_MAX_REFUSAL_BYTES)))
                return Outcome.REFUSED
            reader = one.reader = AnswerReader(self._job.api)
            lines = StreamLines(response)
            while not reader.done and not reader.error:
                line = lines.next()
                if not line:
                    break
                reader.line(line, self._now_s())
        finally:
            response.release()
        return _judged(one, reader)

    def _end(self, one: _Try, outcome: Outcome) -> None:
        now_s = self._now_s()
        self._on_sample(one.sample(outcome, now_s))
        for next_one in self._followers.pop(one.request.index, ()):
            at_s = now_s + next_one.think_s * self._job.dilation
            heapq.heappush(self._due, (at_s, next_one.index, next_one))
        self._changed.set()


def _judged(one: _Try, reader: AnswerReader) -> Outcome:
    if reader.error or not reader.done:
        one.error = reader.error or "the stream ended before its end"
        return Outcome.BROKEN
    if reader.output_tokens != one.request.output_tokens:
        one.error = f"{reader.output_tokens} tokens, not {one.request.output_tokens}"
        return Outcome.WRONG
    return Outcome.ANSWERED


def _client(job: Job) -> HTTPClient:
    parts = urlsplit(job.url)
    if not parts.hostname:
        raise ConfigError(f"url = {job.url!r}: allowed: http:// or https:// with a host")
    secure = parts.scheme == "https"
    return HTTPClient(
        parts.hostname,
        parts.port or (443 if secure else 80),
        ssl=secure,
        ssl_context_factory=(lambda **_: _pinned(job.certificate)) if job.certificate else None,
        insecure=bool(job.certificate),
        concurrency=job.max_in_flight,
        connection_timeout=_CONNECT_TIMEOUT_S,
        network_timeout=max(job.timeout_s * job.dilation, _CONNECT_TIMEOUT_S),
        block_size=_BLOCK_BYTES,
    )


def _pinned(certificate: str) -> Any:
    """Return a context that trusts the one certificate of a file, whatever name it is for."""
    context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= gevent.ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        first = Path(certificate).read_text().partition(_END)[0] + _END
        context.load_verify_locations(cadata=first)
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificate of the target {certificate}: {error}") from None
    return context


def _headers(job: Job) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Connection": "close"}
    key = os.environ.get(job.api_key_env, "").strip() if job.api_key_env else ""
    if job.api_key_file:
        try:
            key = Path(job.api_key_file).read_text().strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"api_key_file {job.api_key_file}: {error}") from None
    if job.api_key_env or job.api_key_file:
        headers["Authorization"] = f"Bearer {key}"
    return headers


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
