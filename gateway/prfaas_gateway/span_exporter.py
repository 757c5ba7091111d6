"""Sends spans to an OpenTelemetry collector, by OTLP over HTTP as JSON, beside the requests.

Why not the SDK: neither it nor its exporter comes with SGLang (only the interface does), its
exporter pins an older protobuf than ours, and works in threads. The protocol is one POST.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import aiohttp

from prfaas.errors import ConfigError
from prfaas_gateway.request_spans import RequestSpans, Sent, transfer_span
from prfaas_gateway.spans import Span, export_request

logger = logging.getLogger(__name__)

MAX_WAITING = 2048
"""Requests whose spans wait; more are dropped, and counted."""
_MAX_BATCH = 256
_PERIOD_S = 1.0
_TOLD_AFTER_S = 0.5
"""After that time a node's agent knows of a transfer that has ended."""
_TIMEOUT_S = 5.0
_ASKED_AT_ONCE = 16
_COMPLAIN_EVERY_S = 60.0

AskRoom = Callable[[Sent], Awaitable[dict[str, object]]]


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Where spans go. `url` takes the POST; `headers` go with it, `resource` says who we are."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    resource: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "ExportSettings | None":
        """Return what OpenTelemetry's own environment variables say; None: no spans.

        Raises:
            ConfigError: a value that cannot be used.
        """
        base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
        own = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
        if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or not (base or own):
            return None
        name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" if own else "OTEL_EXPORTER_OTLP_ENDPOINT"
        url = own or f"{base.rstrip('/')}/v1/traces"
        if not _is_url(url):
            shown = "a user in the URL" if "@" in url else repr(own or base)
            raise ConfigError(f"{name}: {shown}: allowed: http://HOST:PORT or https://...")
        protocol = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        if not protocol.startswith("http/"):
            raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol!r}: allowed: http/json")
        service = {"service.name": environment.get("OTEL_SERVICE_NAME", "prfaas-gateway")}
        resource = _pairs(environment, "OTEL_RESOURCE_ATTRIBUTES") | service
        return cls(url, _pairs(environment, "OTEL_EXPORTER_OTLP_HEADERS"), resource)


def _is_url(text: str) -> bool:
    """Return whether it is one of HTTP, with a host and no password: logs name it."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
    return is_whole and parts.username is None and parts.password is None


def _pairs(environment: Mapping[str, str], name: str) -> dict[str, str]:
    """Return `key=value,key=value` of a variable. Raises: ConfigError, which shows no value: it may
    be a key."""
    found = {}
    pairs = list(filter(None, environment.get(name, "").split(",")))
    for place, pair in enumerate(pairs, start=1):
        key, sign, value = pair.partition("=")
        key, value = key.strip(), unquote(value.strip())
        if not sign or not key or not (key + value).isprintable():
            raise ConfigError(f"{name}: pair {place}: allowed: KEY=VALUE,KEY=VALUE")
        found[key] = value
    return found


class SpanExporter:
    """Keeps finished requests' spans and sends them; what cannot be sent is dropped."""

    def __init__(self, settings: ExportSettings, ask_room: AskRoom) -> None:
        self._settings = settings
        self._ask_room = ask_room
        self._waiting: deque[tuple[float, RequestSpans]] = deque()
        self._complained_s = float("-inf")
        self.dropped = 0

    def take(self, spans: RequestSpans) -> None:
        """Take a finished request; never waits."""
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append((time.monotonic(), spans))

    async def run(self) -> None:
        """Send once a second until cancelled."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await asyncio.sleep(_PERIOD_S)
                try:
                    while batch := self._batch(time.monotonic() - _TOLD_AFTER_S):
                        await self._send(session, await self._spans(batch))
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    self._complain(str(error) or type(error).__name__)
                except Exception:  # an outermost frame: requests are served, traced or not
                    logger.exception("spans")

    def _batch(self, until_s: float) -> list[RequestSpans]:
        batch: list[RequestSpans] = []
        while self._waiting and self._waiting[0][0] <= until_s and len(batch) < _MAX_BATCH:
            batch.append(self._waiting.popleft()[1])
        return batch

    async def _spans(self, batch: list[RequestSpans]) -> list[Span]:
        """Return all spans of the batch, those of their transfers with them."""
        places = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def transfer(sent: Sent) -> Span | None:
            async with places:
                return transfer_span(sent, await self._ask_room(sent))

        asked = [transfer(sent) for request in batch for sent in request.sent]
        transfers = await asyncio.gather(*asked)
        own = [span for request in batch for span in request.finish()]
        return own + [span for span in transfers if span is not None]

    async def _send(self, session: aiohttp.ClientSession, spans: list[Span]) -> None:
        body = json.dumps(export_request(spans, self._settings.resource)).encode()
        headers = {"Content-Type": "application/json", **self._settings.headers}
        async with session.post(
            self._settings.url, data=body, headers=headers, allow_redirects=False
        ) as response:
            if response.status >= 300:
                self._complain(f"HTTP status {response.status}")

    def _complain(self, problem: str) -> None:
        """Say why spans are lost, but not all the time."""
        if time.monotonic() - self._complained_s >= _COMPLAIN_EVERY_S:
            self._complained_s = time.monotonic()
            logger.warning("spans are lost: %s: %s", self._settings.url, problem)
