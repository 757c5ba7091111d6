"""A headless Chromium, driven over its DevTools protocol: one page, its errors, its looks."""

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

START_S = 60.0
CALL_S = 30.0

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root, where the sandbox cannot be used
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-proxy-server",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def chromium_program() -> str:
    """Return Chromium's path. Set-up installs it."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise AssertionError("Chromium is missing: run make setup")


class Chromium:
    """One browser with one page. `problems` are its uncaught errors and console errors."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.problems: list[str] = []
        self.requests: list[str] = []

    async def __aenter__(self) -> Self:
        profile = self._directory / "profile"
        self._process = await asyncio.create_subprocess_exec(
            chromium_program(),
            *_OPTIONS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": str(self._directory)},
        )
        try:
            port = await self._port(profile / "DevToolsActivePort")
            self._session = aiohttp.ClientSession()
            async with self._session.get(f"http://127.0.0.1:{port}/json/list") as response:
                targets = await response.json()
            url = next(one["webSocketDebuggerUrl"] for one in targets if one["type"] == "page")
            self._socket = await self._session.ws_connect(url, max_msg_size=64 << 20)
            self._reader = asyncio.create_task(self._read())
            for domain in ("Page", "Runtime", "Log", "Network"):
                await self.call(f"{domain}.enable")
        except BaseException:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()
        await self._session.close()
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def _port(self, path: Path) -> int:
        async with asyncio.timeout(START_S):
            while not (words := _words(path)):
                assert self._process.returncode is None, "Chromium ended at once"
                await asyncio.sleep(0.05)
        return int(words[0])

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                self._answers.pop(event["id"]).set_result(event)
            else:
                self._note(event["method"], event["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._ids)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        answer = await asyncio.wait_for(self._answers[number], CALL_S)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, url: str, *, width: int, height: int, dark: bool = False) -> None:
        """Open a page in a window of this size; below 600 px as a phone."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href == {url!r} && document.readyState == 'complete'")

    async def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str, timeout_s: float = 30.0) -> None:
        """Wait until an expression holds in the page."""
        try:
            async with asyncio.timeout(timeout_s):
                while not await self.value(expression):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.1)
        except TimeoutError:
            text = await self.value("document.body.innerText")
            raise AssertionError(f"never: {expression}; {self.problems}; page: {text}") from None

    async def screenshot(self, path: Path) -> None:
        """Store a picture of the whole page."""
        shot = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []
