"""Fake engines in two regions, registered in etcd, and a gateway before them."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import aiohttp
from fake_engine import Fabric, FakeEngine

from prfaas.api_section import ApiSection
from prfaas.config import EtcdSection, GatewaySection, NodeConfig, NodeSection
from prfaas.records import Role
from prfaas_coord import EtcdClient, Membership, Registration
from prfaas_gateway import serving


class World:
    """Starts and stops things; `http` talks to the gateway by path."""

    def __init__(self, etcd_endpoint: str, model_path: str, *, deployment: str) -> None:
        self.endpoint = etcd_endpoint
        self.model_path = model_path
        self.deployment = deployment
        self.fabric = Fabric()
        self.engines: dict[str, FakeEngine] = {}
        self.registrations: dict[str, Registration] = {}
        self.http: aiohttp.ClientSession
        self.url = ""
        self._stack = AsyncExitStack()
        self._gateway = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.etcd = await self._stack.enter_async_context(EtcdClient([self.endpoint]))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._gateway.aclose()
        await self._stack.aclose()

    @property
    def prefill_a(self) -> FakeEngine:
        return self.engines["a-prefill-0"]

    @property
    def prefill_b(self) -> FakeEngine:
        return self.engines["b-prefill-0"]

    @property
    def decode_b(self) -> FakeEngine:
        return self.engines["b-decode-0"]

    async def start_engines(self) -> None:
        await self.add_engine(Role.PREFILL, "a", "a-prefill-0")
        await self.add_engine(Role.PREFILL, "b", "b-prefill-0")
        await self.add_engine(Role.DECODE, "b", "b-decode-0")

    async def add_engine(self, role: Role, region: str, name: str, **changes: Any) -> FakeEngine:
        engine = FakeEngine(self.fabric, role, region, name)
        await engine.start()
        self._stack.push_async_callback(engine.stop)
        self.engines[name] = engine
        registration = Membership(self.etcd, self.deployment).register(
            engine.record(**changes), ttl_s=5
        )
        self.registrations[name] = await self._stack.enter_async_context(registration)
        return engine

    async def start_gateway(
        self,
        *,
        wait: bool = True,
        api: ApiSection | None = None,
        key: str = "",
        host: str = "127.0.0.1",
        **changes: Any,
    ) -> None:
        """Start a gateway; `key` is what this world's own requests show."""
        values: dict[str, Any] = {"model_path": self.model_path, "threshold_tokens": 100}
        config = NodeConfig(
            node=NodeSection("b-gateway-0", Role.GATEWAY, "b", self.deployment, host=host),
            etcd=EtcdSection((self.endpoint,)),
            gateway=GatewaySection(**{**values, **changes}),
            api=api or ApiSection(),
        )
        if wait:
            async with asyncio.timeout(10):
                for registration in self.registrations.values():
                    await registration.wait_registered()
        self.url = await self._gateway.enter_async_context(serving(config))
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connector = aiohttp.TCPConnector(ssl=False)  # where there is TLS, its tests look at it
        session = aiohttp.ClientSession(self.url, headers=headers, connector=connector)
        self.http = await self._stack.enter_async_context(session)
        if wait:
            expected = {*self.engines, "b-gateway-0"}
            await self.until_fleet(
                lambda fleet: {node["name"] for node in fleet["nodes"]} >= expected
            )

    async def stop_gateway(self) -> None:
        await self._gateway.aclose()

    async def fleet(self) -> dict[str, Any]:
        async with self.http.get("/admin/v1/fleet") as response:
            fleet: dict[str, Any] = await response.json()
            return fleet

    async def node(self, name: str) -> dict[str, Any]:
        fleet = await self.fleet()
        found: dict[str, Any] = next(node for node in fleet["nodes"] if node["name"] == name)
        return found

    async def until_fleet(self, predicate: Callable[[dict[str, Any]], bool]) -> None:
        await self.until(self.fleet, predicate)

    async def until(self, read: Any, predicate: Callable[[Any], bool] = bool) -> None:
        """Poll until what `read` returns fulfils the predicate."""
        async with asyncio.timeout(10):
            while True:
                value = read()
                if asyncio.iscoroutine(value):
                    value = await value
                if predicate(value):
                    return
                await asyncio.sleep(0.02)

    async def complete(self, prompt: Any, **fields: Any) -> tuple[aiohttp.ClientResponse, Any]:
        """Send a completion and return the response and its JSON."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 4, **fields}
        async with self.http.post("/v1/completions", json=body) as response:
            return response, await response.json()

    async def metrics(self) -> str:
        async with self.http.get("/metrics") as response:
            return await response.text()
