"""One streaming chat request: what came back, how it was routed, when the first token came."""

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from prfaas.errors import ConfigError, StateError
from prfaas_cli.api_key import key_headers

#: Statuses of what no other gateway would take either: as a prompt beyond the context.
_WRONG_REQUEST = (400, 413)


@dataclass(frozen=True, slots=True)
class Routing:
    """What the gateway's headers say of one request; None where they say nothing."""

    route: str | None = None
    reason: str | None = None
    prefill: str | None = None
    prompt_tokens: int | None = None
    prefix_tokens: int | None = None


@dataclass(slots=True)
class ChatAnswer:
    """What one request gave. Times are in seconds from the moment it was sent."""

    text: str = ""
    ttft_s: float | None = None
    total_s: float = 0.0
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    routing: Routing = field(default_factory=Routing)
    request_id: str = ""


def send_chat(
    url: str, body: Mapping[str, Any], *, timeout_s: float, tls: ssl.SSLContext | None = None
) -> ChatAnswer:
    """Send a chat request to a gateway and read its stream to the end.

    `tls` is for https; None trusts what the machine trusts.

    Raises:
        ConfigError: the URL is not one, or the gateway says that the request is wrong.
        StateError: the gateway does not answer, or answers with another error.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--url {url!r}: allowed: http://host:port or https://host:port")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout_s, context=tls
        )
    began_s = time.perf_counter()
    try:
        text = json.dumps(dict(body))
        path = parts.path.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        headers = {"Content-Type": "application/json", **key_headers()}
        connection.request("POST", path, text, headers)
        response = connection.getresponse()
        if response.status != 200:
            refused = ConfigError if response.status in _WRONG_REQUEST else StateError
            raise refused(_refusal(response))
        return _read(response, began_s)
    except (OSError, http.client.HTTPException) as error:
        raise StateError(f"the gateway at {url} does not answer: {error}") from None
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse, began_s: float) -> ChatAnswer:
    headers = response.headers
    answer = ChatAnswer(request_id=headers.get("x-request-id", ""), routing=_routing(headers))
    pieces = []
    for event in _events(response):
        if "error" in event:
            raise StateError(f"the stream broke off: {_message(event['error'])}")
        answer.usage = event.get("usage") or answer.usage
        for choice in event.get("choices", []):
            piece = (choice.get("delta") or {}).get("content")
            if piece and answer.ttft_s is None:
                answer.ttft_s = time.perf_counter() - began_s
            pieces.append(piece or "")
            answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    answer.total_s = time.perf_counter() - began_s
    answer.text = "".join(pieces)
    return answer


def _routing(headers: http.client.HTTPMessage) -> Routing:
    def number(name: str) -> int | None:
        text = headers.get(name, "")
        return int(text) if text.isdecimal() else None

    return Routing(
        route=headers.get("x-prfaas-route"),
        reason=headers.get("x-prfaas-reason"),
        prefill=headers.get("x-prfaas-prefill"),
        prompt_tokens=number("x-prfaas-prompt-tokens"),
        prefix_tokens=number("x-prfaas-prefix-tokens"),
    )


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    while line := response.readline():
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if data and data != b"[DONE]":
            value = json.loads(data)
            if isinstance(value, dict):
                yield value


def _refusal(response: http.client.HTTPResponse) -> str:
    text = response.read().decode(errors="replace")
    try:
        said = _message(json.loads(text))
    except ValueError:
        said = text.strip()[:300]
    reason = response.headers.get("x-prfaas-reason", "")
    return f"the gateway refused ({response.status}{', ' + reason if reason else ''}): {said}"


def _message(error: Any) -> str:
    if isinstance(error, dict):
        return _message(error.get("error") or error.get("message") or error)
    return " ".join(str(error).split())[:300]
