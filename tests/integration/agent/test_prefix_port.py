"""Two agents' ports move a prefix between two real pools, open, with a secret and inside TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from certificates import Certificates
from pool_service import PoolProcess, load, store

from prfaas.blocks.block_layout import KEY_BYTES, KV
from prfaas.blocks.page_hashes import page_hashes
from prfaas.config import NodeConfig, NodeSection, SecurityMode, SecuritySection
from prfaas.pool_section import PoolSection
from prfaas.prefix_moves import FETCH_PATH, OFFER_PATH, FetchAnswer, FetchRequest, Outcome
from prfaas.records import Role
from prfaas.transfer_section import TransferSection
from prfaas_agent.prefix_port import moving
from prfaas_pool import PoolClient
from prfaas_pool.space import Space
from prfaas_transport.tls_context import TlsContexts, TlsFiles

HOST = "127.0.0.1"
SIZES = {KV: 900, "mamba": 9000}
#: Two workers of one engine, as with tensor parallelism.
SPACES = [Space("tiny", f"tp{rank}/2", 4, SIZES, {"mamba": 1}) for rank in range(2)]
TOKENS = np.arange(82, dtype="<u4").tobytes()
PAGES = 20


class Pools:
    """The pools of two regions; that of `a` has a prompt."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.services = {}
        self.clients = {}
        for name in ("a", "b"):
            (directory / name).mkdir()
            self.services[name] = PoolProcess(directory / name, num_bytes=128 * 4096)
            self.clients[name] = PoolClient(self.services[name].socket)
        for space in SPACES:
            self.clients["a"].describe(space)
            chain = space.namespace.keys(page_hashes(TOKENS, 4))
            store(self.clients["a"], chain, PAGES - 1, group="mamba", size=SIZES["mamba"])
            assert store(self.clients["a"], chain, 0, group=KV, size=SIZES[KV]) == PAGES

    def tell_b(self) -> None:
        """Let b's engine say what it stores."""
        for space in SPACES:
            self.clients["b"].describe(space)

    def config(self, name: str, security: SecuritySection) -> NodeConfig:
        return NodeConfig(
            node=NodeSection(f"{name}-prefill-0", Role.PREFILL, name, "demo", HOST),
            pool=PoolSection(str(self.services[name].socket)),
            security=security,
            transfer=TransferSection(lanes=2),
        )

    def close(self) -> None:
        for name in ("a", "b"):
            self.clients[name].close()
            self.services[name].close()


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[Pools]:
    found = Pools(tmp_path)
    yield found
    found.close()


@asynccontextmanager
async def ports(pools: Pools, security: dict[str, SecuritySection]) -> AsyncIterator[list[str]]:
    """Serve both; yields `host:port` of a and b."""
    async with AsyncExitStack() as stack:
        yield [
            f"{HOST}:{await stack.enter_async_context(moving(pools.config(name, security[name])))}"
            for name in ("a", "b")
        ]


OPEN = dict.fromkeys(("a", "b"), SecuritySection())


async def fetch(
    b: str, a: str, *, scheme: str = "http", tls: ssl.SSLContext | bool = True
) -> FetchAnswer:
    """Ask b to fetch the prompt from a."""
    wanted = FetchRequest(f"{scheme}://{a}", "tiny", TOKENS)
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{scheme}://{b}{FETCH_PATH}", data=wanted.encode(), ssl=tls) as response,
    ):
        assert response.status == 200, await response.text()
        return FetchAnswer.from_json(await response.json())


async def test_a_prefix_is_fetched_once_for_all_workers(pools: Pools) -> None:
    async with ports(pools, OPEN) as (a, b):
        unknown = await fetch(b, a)
        assert unknown.outcome is Outcome.UNKNOWN
        pools.tell_b()
        moved = await fetch(b, a)
        assert (moved.outcome, moved.tokens, moved.had_tokens) == (Outcome.MOVED, 80, 0)
        assert moved.num_bytes == 2 * (PAGES * SIZES[KV] + SIZES["mamba"])
        again = await fetch(b, a)
    assert (again.outcome, again.tokens, again.num_bytes) == (Outcome.NOTHING, 80, 0)
    for space in SPACES:
        chain = space.namespace.keys(page_hashes(TOKENS, 4))[: PAGES * KEY_BYTES]
        there = await asyncio.to_thread(load, pools.clients["b"], chain, 0, group=KV, size=900)
        assert there == PAGES


async def test_a_source_that_is_away_is_a_failed_move(pools: Pools) -> None:
    pools.tell_b()
    async with ports(pools, OPEN) as (_, b):
        failed = await fetch(b, "127.0.0.1:9")
    assert (failed.outcome, failed.tokens) == (Outcome.FAILED, 0)
    assert failed.detail


async def test_what_is_no_request_is_refused(pools: Pools) -> None:
    async with ports(pools, OPEN) as (_, b), aiohttp.ClientSession() as session:
        for path in (FETCH_PATH, OFFER_PATH):
            for body in (b"", b"x", b"{}\n", b"[]\n1234", b"{\n", b'{"a":1}\n12345'):
                async with session.post(f"http://{b}{path}", data=body) as response:
                    assert response.status == 400, (path, body)


def mtls(files: TlsFiles) -> SecuritySection:
    return SecuritySection(SecurityMode.MTLS, str(files.ca), str(files.cert), str(files.key))


async def test_inside_tls_only_nodes_of_the_deployment_may_ask(
    pools: Pools, tmp_path: Path
) -> None:
    certs = Certificates(tmp_path / "certs", "demo")
    nodes = {name: certs.node(f"{name}-prefill-0", region=name, addresses=(HOST,)) for name in "ab"}
    gateway = certs.node("b-gateway-0", region="b", addresses=(HOST,))
    foreign = Certificates(tmp_path / "foreign", "demo").node("b-gateway-0")
    stranger = TlsFiles(ca=gateway.ca, cert=foreign.cert, key=foreign.key)
    pools.tell_b()
    async with (
        ports(pools, {name: mtls(files) for name, files in nodes.items()}) as (a, b),
        aiohttp.ClientSession() as session,
    ):
        wanted = FetchRequest(f"https://{a}", "tiny", TOKENS).encode()
        for url, tls in (
            (f"https://{b}{FETCH_PATH}", TlsContexts(stranger).http_client()),
            (f"https://{b}{OFFER_PATH}", ssl.create_default_context(cafile=str(gateway.ca))),
            (f"http://{b}{FETCH_PATH}", True),
        ):
            with pytest.raises(aiohttp.ClientError):
                await session.post(url, data=wanted, ssl=tls)
        moved = await fetch(b, a, scheme="https", tls=TlsContexts(gateway).http_client())
    assert (moved.outcome, moved.tokens) == (Outcome.MOVED, 80)


async def test_lanes_of_another_secret_bring_nothing(pools: Pools, tmp_path: Path) -> None:
    pools.tell_b()
    security = {}
    for name in ("a", "b"):
        path = tmp_path / f"{name}.secret"
        path.write_text(name * 40)
        security[name] = SecuritySection(SecurityMode.SECRET, secret_file=str(path))
    async with ports(pools, security) as (a, b):
        refused = await fetch(b, a)
    assert refused.outcome is Outcome.FAILED
    async with ports(pools, dict.fromkeys(("a", "b"), security["a"])) as (a, b):
        assert (await fetch(b, a)).outcome is Outcome.MOVED
