"""A client of one live SGLang server: what it is, and streams whose tokens are timed."""

import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from prfaas.errors import ConfigError, StateError

_PLAIN = (None, "", "null")
_CONNECT_S = 10.0
_INFO_S = 30.0
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a server says of itself; 0 or empty where it does not.

    `longest_prompt` is the longest prompt it takes, `pool_tokens` what all requests together may
    hold, `gpus` the accelerators of the instance (1 for a CPU).
    """

    model_path: str
    model: str
    version: str
    device: str
    longest_prompt: int
    pool_tokens: int
    largest_batch: int
    gpus: int
    kv_dtype: str
    ssm_dtype: str


@dataclass(frozen=True, slots=True)
class TimedStream:
    """One answer: `arrivals` are (seconds on the monotonic clock, tokens so far) of each event."""

    began_s: float
    cached_tokens: int
    arrivals: tuple[tuple[float, int], ...]

    @property
    def ttft_s(self) -> float:
        """Seconds from sending the request to its first token."""
        return self.arrivals[0][0] - self.began_s


class EngineClient:
    """Talks to one server; use as an async context manager.

    Raises:
        ConfigError: the URL is none, or no plain SGLang server is there.
        StateError: the server went away or refuses.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self.url = checked_url(url)
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        limits = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=_CONNECT_S)
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=limits, read_bufsize=_BUFFER_BYTES
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def facts(self) -> EngineFacts:
        """Return what the server says of itself."""
        info = await self._get("/model_info", "/get_model_info")
        if not isinstance(info.get("model_path"), str):
            raise ConfigError(f"{self.url}: not an SGLang server: its /model_info names no model")
        mode = info.get("disaggregation_mode")
        if mode not in _PLAIN:
            raise ConfigError(
                f"{self.url}: serves {mode!r:.40} only; measure a server started without"
                " --disaggregation-mode"
            )
        return facts_of(info, await self._get("/server_info", "/get_server_info"))

    async def stream(self, prompt: list[int], *, tokens: int) -> TimedStream:
        """Send a prompt of token ids and time its answer of so many tokens."""
        body = {
            "input_ids": prompt,
            "stream": True,
            "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
        }
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        began_s = time.perf_counter()
        arrivals: list[tuple[float, int]] = []
        cached_tokens = 0
        try:
            url = f"{self.url}/generate"
            async with self._open.post(url, data=data, headers=headers) as response:
                if response.status != 200:
                    raise StateError(self._refusal(len(prompt), await response.text()))
                async for event in _events(response):
                    now_s = time.perf_counter()
                    meta = self._meta(event, len(prompt))
                    count = _whole(meta.get("completion_tokens")) or len(arrivals) + 1
                    cached_tokens = _whole(meta.get("cached_tokens"))
                    arrivals.append((now_s, count))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise StateError(f"{self.url}: {_why(error, self._timeout_s)}") from None
        if not arrivals:
            raise StateError(f"{self.url}: the answer to a prompt was empty")
        return TimedStream(began_s, cached_tokens, tuple(arrivals))

    @property
    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "use it as an async context manager"
        return self._session

    async def _get(self, *paths: str) -> dict[str, Any]:
        """Return the JSON object of the first path that the server knows."""
        limit_s = min(_INFO_S, self._timeout_s)
        for path in paths:
            try:
                timeout = aiohttp.ClientTimeout(total=limit_s, sock_connect=_CONNECT_S)
                async with self._open.get(f"{self.url}{path}", timeout=timeout) as response:
                    if response.status == 404:
                        continue
                    if response.status != 200:
                        raise ConfigError(f"{self.url}: GET {path} answers {response.status}")
                    value = json.loads(await response.read())
            except (aiohttp.ClientError, TimeoutError) as error:
                raise ConfigError(f"--url {self.url}: {_why(error, limit_s)}") from None
            except ValueError:
                raise ConfigError(f"{self.url}: not an SGLang server: {path} is not JSON") from None
            if isinstance(value, dict):
                return value
        raise ConfigError(f"{self.url}: not an SGLang server: it has no {paths[0]}")

    def _meta(self, event: dict[str, Any], length: int) -> dict[str, Any]:
        if "error" in event:
            raise StateError(self._refusal(length, json.dumps(event)))
        meta = event.get("meta_info")
        meta = meta if isinstance(meta, dict) else {}
        reason = meta.get("finish_reason")
        if isinstance(reason, dict) and reason.get("type") == "abort":
            raise StateError(self._refusal(length, json.dumps(reason)))
        return meta

    def _refusal(self, length: int, text: str) -> str:
        return f"{self.url}: refuses a prompt of {length} tokens: {_message(text)}"


def checked_url(url: str) -> str:
    """Return the base of a server's URL.

    >>> checked_url("http://127.0.0.1:30000/")
    'http://127.0.0.1:30000'

    Raises:
        ConfigError: it is none.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.path.strip("/") or parts.query:
        raise ConfigError(f"--url {url!r:.100}: allowed: http://host:port")
    return f"{parts.scheme}://{parts.netloc}"


def is_local(url: str) -> bool:
    """Say whether a URL leads to this machine's loopback."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def facts_of(model: dict[str, Any], server: dict[str, Any]) -> EngineFacts:
    """Return the facts in the answers of /model_info and /server_info.

    Source: sglang 0.5.23 srt/utils/common.py (build_server_info).
    """
    name = server.get("served_model_name") or model.get("served_model_name")
    path = str(model["model_path"])
    device = str(server.get("device") or "")
    ranks = max(_whole(server.get("tp_size")), 1) * max(_whole(server.get("pp_size")), 1)
    replicas = 1 if server.get("enable_dp_attention") else max(_whole(server.get("dp_size")), 1)
    kv_dtype = str(server.get("kv_cache_dtype") or "auto")
    return EngineFacts(
        model_path=path,
        model=str(name or path).rstrip("/").rpartition("/")[2] or path,
        version=str(server.get("version") or ""),
        device=device,
        longest_prompt=_whole(server.get("max_req_input_len")),
        pool_tokens=_whole(server.get("max_total_num_tokens")),
        largest_batch=_whole(server.get("max_running_requests")),
        gpus=1 if device == "cpu" else ranks * replicas,
        kv_dtype=str(server.get("dtype") or "") if kv_dtype == "auto" else kv_dtype,
        ssm_dtype=str(server.get("mamba_ssm_dtype") or ""),
    )


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in response.content:
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if data and data != b"[DONE]":
            value = json.loads(data)
            if isinstance(value, dict):
                yield value


def _why(error: Exception, limit_s: float) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no server answers: {_os_words(error.os_error)}; is it up?"
    if isinstance(error, TimeoutError):
        return f"no answer within {limit_s:g} s; a larger --timeout may help"
    return f"the server broke off: {str(error) or type(error).__name__}"


def _os_words(error: OSError) -> str:
    """asyncio puts the address where the words of the error belong."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _message(text: str) -> str:
    """Return what an error body says, on one line."""
    try:
        value: Any = json.loads(text)
        while isinstance(value, dict):
            value = value.get("error") or value.get("message") or str(value)
    except ValueError:
        value = text
    return " ".join(str(value).split())[:300]
