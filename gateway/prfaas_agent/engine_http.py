"""Ask an engine over HTTP; every call has a deadline and none raises for an engine that is away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from prfaas.records import Role

_HEALTH_TIMEOUT_S = 25.0  # SGLang answers within 20 s whether a token came out
_INFO_TIMEOUT_S = 5.0
_SWITCH_TIMEOUT_S = 600.0  # a decode may capture graphs before it answers


@dataclass(frozen=True, slots=True)
class SwitchAnswer:
    """What SGLang said to a change of its role.

    `is_busy`: it has requests; `is_whole`: it serves on in its old role, if not `done`.

    Source: sglang 0.5.23 srt/disaggregation/role_switch.py.
    """

    done: bool
    message: str
    is_busy: bool = False
    is_whole: bool = False


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

    async def is_idle(self) -> bool | None:
        """Return whether the engine has no request in any queue; None if it does not tell.

        Source: sglang 0.5.23 srt/managers/scheduler_components/load_inquirer.py.
        """
        body = await self._get("/v1/loads", timeout_s=_INFO_TIMEOUT_S, parse=True)
        try:
            return not any(_has_requests(load) for load in body["loads"])
        except (TypeError, KeyError, AttributeError):
            return None

    async def switch_role(self, role: Role, *, decode_cuda_graph_memory_gb: float) -> SwitchAnswer:
        """Change the engine's role, if it has nothing to do."""
        assert self._session is not None
        body = {
            "new_role": str(role),
            "decode_cuda_graph_memory_gb": decode_cuda_graph_memory_gb,
        }
        timeout = aiohttp.ClientTimeout(total=_SWITCH_TIMEOUT_S)
        try:
            async with self._session.post(
                self.url + "/pd_role_switch", json=body, timeout=timeout
            ) as response:
                said = await response.json(content_type=None)
            message = str(said["message"])
            return SwitchAnswer(
                done=said["success"] is True,
                message=message,
                is_busy="not idle" in message,
                is_whole=said["safe_to_restore"] is True,
            )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError) as e:
            return SwitchAnswer(done=False, message=f"no answer: {type(e).__name__}: {e}")

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


def _has_requests(load: Mapping[str, Any]) -> bool:
    """Return whether one data-parallel rank has any; the same request may be in two counts."""
    queues = load["disaggregation"]
    counts = [queues[name] for name in queues if name.endswith("_queue_reqs")]
    grammar = load.get("queues", {}).get("grammar", 0)
    return any((load["num_running_reqs"], load["num_waiting_reqs"], grammar, *counts))
