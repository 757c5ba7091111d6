"""A site for drills without engines: a gateway of a few lines that answers as told, and a link."""

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from prfaas.errors import StateError
from prfaas_loadtest.drills.site import Snapshot


@dataclass
class FakeSite:
    """What a drill sees of a site. `acts` are the faults that reached it, in order."""

    url: str = ""
    processes: Sequence[str] = ("a-prefill-0", "b-decode-0", "b-gateway-0")
    acts: list[str] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=lambda: _link())
    counted: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    tls: None = None
    is_hanging: bool = False
    refuses: str = ""
    leaks: float = 0.0
    wrong_from: int = 1 << 30
    answered: int = 0
    lives: dict[str, int] = field(default_factory=dict)
    stay_dead: Sequence[str] = ()

    @property
    def twins(self) -> Sequence[str]:
        return ("a-prefill-0", "b-decode-0")

    def process(self, name: str) -> Any:
        return f"{name}, life {self.lives.get(name, 1)}"

    def signal(self, name: str, number: int) -> bool:
        self.acts.append(f"signal {int(number)} {name}")
        if number == 9 and name not in self.stay_dead:
            self.lives[name] = 2
        self.is_hanging = number == 19
        return name != "nobody"

    def pause(self, process: Any) -> None:
        self.acts.append(f"pause {process}")
        self.is_hanging = True

    def resume(self, process: Any) -> None:
        self.acts.append(f"resume {process}")
        self.is_hanging = False

    def link(self) -> dict[str, Any]:
        return _link()

    def set_link(self, wanted: dict[str, Any]) -> None:
        self.acts.append(f"link {wanted['a-b']['loss']:g} {wanted['b-a']['loss']:g}")
        self.spec = wanted

    def inject(self, node: str, faults: dict[str, Any]) -> None:
        self.acts.append(f"inject {node} {json.dumps(faults)}")
        if self.refuses and "stall_s" in faults and faults["stall_s"]:
            raise StateError(self.refuses)

    def fill_disk(self) -> None:
        self.acts.append("fill")

    def free_disk(self) -> None:
        self.acts.append("free")

    def pester(self, node: str, seed: int, count: int) -> int:
        self.acts.append(f"pester {node}")
        return count

    def change_role(self, node: str) -> None:
        self.acts.append(f"role {node}")

    def step_clock(self, name: str, step_s: float) -> None:
        raise StateError("no clock of its own")

    def problems(self) -> list[str]:
        return ["it hangs"] if self.is_hanging else []

    def snapshot(self) -> Snapshot:
        return Snapshot({"rooms": self.leaks}, frozenset({"p > d"}), frozenset({"p"}), 1)

    def requests_counted(self) -> float | None:
        return self.counted

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer as a gateway would: tokens follow from the prompt."""
        body = await request.json()
        self.counted += 1
        self.answered += 1
        while self.is_hanging:  # noqa: ASYNC110 - short
            await asyncio.sleep(0.01)
        prompt, count = body["input_ids"], body["sampling_params"]["max_new_tokens"]
        seed = zlib.crc32(json.dumps(prompt).encode()) + (self.answered > self.wrong_from)
        tokens = [(seed + position) % 500 for position in range(count)]
        is_cut = any(way["loss"] == 1 for way in self.spec.values())
        route = "offload" if len(prompt) > 500 and not is_cut else "local"
        headers = {"x-prfaas-route": route, "x-prfaas-reason": "below_threshold"}
        if not body["stream"]:
            return web.json_response(_body(tokens, "length"), headers=headers)
        response = web.StreamResponse(headers=headers | {"content-type": "text/event-stream"})
        await response.prepare(request)
        for done in range(1, count + 1):
            event = _body(tokens[:done], "length" if done == count else None)
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response


def _link() -> dict[str, Any]:
    return {way: {"loss": 0.0, "delay_s": 0.0, "rate_bits_per_s": 10**9} for way in ("a-b", "b-a")}


def _body(tokens: list[int], finish: str | None) -> dict[str, Any]:
    reason = {"type": finish, "length": len(tokens)} if finish else None
    return {"text": "", "output_ids": tokens, "meta_info": {"finish_reason": reason}}


@contextlib.asynccontextmanager
async def fake_site(**settings: Any) -> AsyncIterator[FakeSite]:
    """Serve a site on loopback while the context lasts."""
    site = FakeSite(**settings)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/generate", site.answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        tcp = web.TCPSite(runner, "127.0.0.1", 0)
        await tcp.start()
        port = runner.addresses[0][1]
        site.url = f"http://127.0.0.1:{port}"
        yield site
    finally:
        await runner.cleanup()
