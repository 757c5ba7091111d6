"""Ask an engine over HTTP; every call has a deadline and none raises for an engine that is away."""

from typing import Any

import aiohttp

_HEALTH_TIMEOUT_S = 25.0  # SGLang answers within 20 s whether a token came out
_INFO_TIMEOUT_S = 5.0


class EngineHttp:
    """A client of one engine; use `async with`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "EngineHttp":
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def is_healthy(self) -> bool:
        """Return whether the engine could make a token just now."""
        return await self._get("/health", timeout_s=_HEALTH_TIMEOUT_S) is not None

    async def server_info(self) -> dict[str, Any]:
        """Return SGLang's resolved settings, empty when it does not tell in time."""
        body = await self._get("/server_info", timeout_s=_INFO_TIMEOUT_S, parse=True)
        return body if isinstance(body, dict) else {}

    async def _get(self, path: str, *, timeout_s: float, parse: bool = False) -> Any:
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(self.url + path, timeout=timeout) as response:
                if response.status != 200:
                    return None
                return await response.json(content_type=None) if parse else response.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
