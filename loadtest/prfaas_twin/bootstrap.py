"""Where the two legs of a request meet: SGLang's bootstrap protocol, both ends.

A prefill serves `/route`; a decode asks it once for its ranks and where its lanes are.

Source: sglang 0.5.23 srt/disaggregation/common/conn.py (CommonKVBootstrapServer, CommonKVManager).
"""

import asyncio
import ipaddress
import json
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import web

from prfaas.errors import TransferError

Address = tuple[str, int]

#: What a twin says its cache is made of: engines of another kind refuse it before its lanes do.
KV_DTYPE = "twin"
_RANKS = ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")
_ASK_TIMEOUT_S = 5.0
_RETRY_S = 1.0
#: SGLang asks 15 times, a second apart.
TRIES = 15
_MAX_ANSWER_BYTES = 64 << 10


def bootstrap_app(lanes: Address, *, page_tokens: int, http_port: int) -> web.Application:
    """Return a prefill's bootstrap server, which tells where its lanes are."""
    info = {
        "attn_tp_size": 1,
        "attn_cp_size": 1,
        "dp_size": 1,
        "pp_size": 1,
        "page_size": page_tokens,
        "kv_cache_dtype": KV_DTYPE,
        "follow_bootstrap_room": True,
        "enable_dsa_cache_layer_split": False,
        "decode_allocation_policy": "early",
        "enable_kv_cache_sharding": False,
        "prefill_http_port": http_port,
        "target_tp_rank": None,
        "target_tp_ranks": None,
        "target_cp_ranks": None,
        "target_pp_ranks": None,
        "required_dst_info_num": None,
        "required_prefill_response_num": None,
    }

    async def route(request: web.Request) -> web.Response:
        try:
            ranks = [int(request.query[name]) for name in _RANKS]
        except (KeyError, ValueError):
            return web.Response(text="Missing inputs for bootstrap server.", status=400)
        if ranks == [-1] * 4:
            return web.json_response(info)
        if ranks == [0] * 4:
            return web.json_response({"rank_ip": lanes[0], "rank_port": lanes[1]})
        named = "dp_rank={} cp_rank={} tp_rank={} pp_rank={}".format(*ranks)
        return web.Response(text=f"Bootstrap info not found for {named}", status=404)

    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="OK")

    app = web.Application()
    app.router.add_get("/route", route)
    app.router.add_get("/health", health)
    return app


class Directory:
    """What a decode knows of prefill instances: where the lanes of a bootstrap address are."""

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None, *, page_tokens: int) -> None:
        self._tls = tls
        self._page_tokens = page_tokens
        self._known: dict[Address, Address] = {}
        self._asking: dict[Address, asyncio.Lock] = {}
        self._session: aiohttp.ClientSession | None = None

    async def resolve(self, bootstrap: Address) -> Address:
        """Return the address of a prefill's lanes; tries for some 15 seconds.

        Raises:
            TransferError: it cannot be reached, or does not fit.
        """
        async with self._asking.setdefault(bootstrap, asyncio.Lock()):
            known = self._known.get(bootstrap)
            for attempt in range(TRIES):
                if known is None and attempt:
                    await asyncio.sleep(_RETRY_S)
                known = known or await self._ask(bootstrap)
            if known is None:
                raise TransferError("Aborted by AbortReq.")
            self._known[bootstrap] = known
            return known

    def forget(self, lanes: Address) -> None:
        """Forget a prefill whose lanes are gone, so that its next life is asked for afresh."""
        for bootstrap, known in list(self._known.items()):
            if known == lanes:
                del self._known[bootstrap]

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _ask(self, bootstrap: Address) -> Address | None:
        info = await self._get(bootstrap, rank=-1)
        if info is None:
            return None
        for key, ours in (("page_size", self._page_tokens), ("kv_cache_dtype", KV_DTYPE)):
            if info.get(key) != ours:
                text = (
                    f"prefill server has {key}={info.get(key)}, but decode server has {key}={ours}."
                )
                raise TransferError(f"{key} mismatch", text)
        for key in ("attn_tp_size", "attn_cp_size", "dp_size", "pp_size"):
            if info.get(key) != 1:
                raise TransferError(f"{key} mismatch", f"prefill has {info.get(key)}, a twin 1")
        rank = await self._get(bootstrap, rank=0)
        if rank is None:
            return None
        host, port = rank.get("rank_ip"), rank.get("rank_port")
        if not isinstance(host, str) or type(port) is not int or not 0 < port < 65536:
            raise TransferError("bad_bootstrap", f"{bootstrap} says its lanes are at {host}:{port}")
        return host, port

    async def _get(self, bootstrap: Address, *, rank: int) -> dict[str, Any] | None:
        """Return what `/route` says, None if it cannot be had now."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_ASK_TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        host, port = bootstrap
        tls = self._tls() if self._tls is not None and _leaves_host(host) else None
        url = f"{'http' if tls is None else 'https'}://{host}:{port}/route"
        query = dict.fromkeys(_RANKS, str(rank))
        try:
            async with self._session.get(url, params=query, ssl=tls or True) as response:
                if response.status != 200:
                    return None
                answer = json.loads(await response.content.read(_MAX_ANSWER_BYTES))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None


def _leaves_host(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
