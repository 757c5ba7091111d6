"""SGLang's HiCache storage on the host's prefix pool.

A storage of the kind `dynamic` with the v1 interface: SGLang builds it by its path and passes the
hashes of all pages before those it asks for. States (Mamba, sliding window) come as v2 transfers.

Source: sglang 0.5.23 srt/mem_cache/hicache_storage.py, srt/managers/cache_controller.py.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolTransfer,
    PoolTransferResult,
)

from prfaas.blocks.block_layout import KEY_BYTES, KV
from prfaas.blocks.namespace import Namespace
from prfaas.errors import ConfigError
from prfaas_pool import PoolClient
from prfaas_pool.space import Space

log = logging.getLogger("prfaas.plugin")

_ALL_PAGES = 1 << 24
#: A recurrent state stands for all that was before it: a prefix needs its last one.
_TRAILING = {"mamba": 1}

Bytes = NDArray[np.uint8]


class PrefixPoolStorage(HiCacheStorage):  # type: ignore[misc]
    """Pages and states of one worker in the pool; shared with workers of the same model and layout.

    Called on SGLang's storage threads. Whatever happens to the pool is a miss here, never an error.
    """

    def __init__(self, storage_config: HiCacheStorageConfig, _kwargs: dict[str, Any]) -> None:
        extra = storage_config.extra_config or {}
        if not extra.get("socket"):
            raise ConfigError("prefix pool: the storage's extra config names no socket")
        self._client = PoolClient(extra["socket"])
        self._config = storage_config
        self._model = str(extra.get("model") or storage_config.model_name or "")
        self._pools: dict[str, Any] = {}
        self._item_bytes: dict[str, int] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._namespace: Namespace | None = None
        self._trailing: dict[str, int] = {}

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Take the pool of full-attention KV."""
        super().register_mem_pool_host(mem_pool_host)
        self._pools[KV] = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """Take another pool, of states."""
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        name = _name(host_pool_name)
        if name != KV:
            self._pools[name] = host_pool

    def on_host_pools_registered(self) -> None:
        """Learn the sizes of items; what shares them may share a cache."""
        for name, pool in self._pools.items():
            self._dtypes[name] = pool.get_data_page(0, flat=True).dtype
            self._item_bytes[name] = _page(pool, 0).nbytes
        config = self._config
        parts = [
            f"tp{config.tp_rank}/{config.tp_size}",
            f"pp{config.pp_rank}/{config.pp_size}",
            f"cp{config.attn_cp_rank}/{config.attn_cp_size}",
        ]
        for name, pool in sorted(self._pools.items()):
            geometry = (pool.page_size, pool.layout, self._dtypes[name], self._item_bytes[name])
            parts.append(f"{name}:" + ",".join(map(str, geometry)))
        self._namespace = Namespace(self._model, ";".join(parts))
        log.info("prefix pool: items of %s bytes", self._item_bytes)
        self._trailing = {name: n for name, n in _TRAILING.items() if name in self._item_bytes}
        self._describe()

    def batch_exists(
        self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> int:
        """Return how many leading pages of `keys` are stored."""
        chain, first = self._chain(keys, extra_info)
        return max(0, self._client.match(chain, {}).kv_pages - first)

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        """Return how far KV and all states are there, in pages of `keys`."""
        chain, first = self._chain(keys, extra_info)
        trailing = {_name(item.name): _trailing(item) for item in pool_transfers or []}
        self._note_trailing(trailing)
        match = self._client.match(chain, trailing, start=first)
        usable = [length - first for length in match.usable if length > first]
        hits = {KV: match.kv_pages - first} if match.kv_pages > first else {}
        for name, length in (match.boundaries or {}).items():
            if length > first:
                hits[name] = length - first
        return PoolTransferResult(max(usable, default=0), hits, usable)

    def batch_get_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        """Load pages of KV into the host pool."""
        return self._load(KV, keys, host_indices, extra_info)

    def batch_set_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        """Store pages of KV from the host pool."""
        return self._store(KV, keys, host_indices, extra_info)

    def batch_get_v2(
        self,
        transfers: list[PoolTransfer],
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> dict[str, list[bool]]:
        """Load states into their host pools."""
        return self._each(self._load, transfers, extra_info)

    def batch_set_v2(
        self,
        transfers: list[PoolTransfer],
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> dict[str, list[bool]]:
        """Store states from their host pools."""
        return self._each(self._store, transfers, extra_info)

    def clear(self) -> bool:
        """Keep everything: the pool is shared, and what it holds stays right.

        SGLang calls this at a role switch, when only its own caches lose their meaning.
        """
        log.info("prefix pool: kept, it is not this engine's alone")
        return True

    def close(self) -> None:
        """End the connection to the pool."""
        self._client.close()

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> None:
        """Refuse: a page cannot be found without those before it; SGLang uses the batch calls.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("the prefix pool has the v1 and v2 batch calls only")

    batch_get = set = batch_set = exists = get

    def _note_trailing(self, trailing: dict[str, int]) -> None:
        """Learn how many of a prefix's last pages need states; a short prompt shows fewer."""
        news = {
            name: pages
            for name, pages in trailing.items()
            if name in self._item_bytes and pages > self._trailing.get(name, 0)
        }
        if news:
            self._trailing |= news
            self._describe()

    def _describe(self) -> None:
        """Tell the pool whose pages these are, so that they can be moved to other regions."""
        assert self._namespace is not None
        model, layout = self._namespace.model, self._namespace.layout
        page_tokens = int(self._pools[KV].page_size)
        self._client.describe(
            Space(model, layout, page_tokens, dict(self._item_bytes), dict(self._trailing))
        )

    def _each(
        self,
        move: Callable[..., list[bool]],
        transfers: Sequence[PoolTransfer],
        extra_info: HiCacheStorageExtraInfo | None,
    ) -> dict[str, list[bool]]:
        return {
            item.name: move(_name(item.name), item.keys or [], item.host_indices, extra_info)
            for item in transfers
        }

    def _load(
        self,
        group: str,
        keys: list[str],
        host_indices: torch.Tensor | None,
        extra_info: HiCacheStorageExtraInfo | None,
    ) -> list[bool]:
        slots = self._slots(group, keys, host_indices)
        if slots is None:
            return [False] * len(keys)
        pool = self._pools[group]
        chain, first = self._chain(keys, extra_info)

        def take(position: int, data: Bytes) -> None:
            page = torch.from_numpy(data).view(self._dtypes[group])
            pool.set_from_flat_data_page(slots[position - first], page)

        size = self._item_bytes[group]
        loaded = self._client.load(chain, first, group=group, item_bytes=size, take=take)
        return [True] * loaded + [False] * (len(keys) - loaded)

    def _store(
        self,
        group: str,
        keys: list[str],
        host_indices: torch.Tensor | None,
        extra_info: HiCacheStorageExtraInfo | None,
    ) -> list[bool]:
        slots = self._slots(group, keys, host_indices)
        if slots is None:
            return [False] * len(keys)
        pool = self._pools[group]
        chain, first = self._chain(keys, extra_info)

        def item(position: int) -> Bytes:
            return _page(pool, slots[position - first])

        size = self._item_bytes[group]
        stored = self._client.store(chain, first, group=group, item_bytes=size, item=item)
        return [True] * stored + [False] * (len(keys) - stored)

    def _slots(
        self, group: str, keys: list[str], host_indices: torch.Tensor | None
    ) -> list[int] | None:
        """Return the host index of each page; None where there is nothing that can be moved."""
        if group not in self._item_bytes or host_indices is None or not keys:
            return None
        page_size = getattr(self._pools[group], "page_size", 1) or 1
        if host_indices.numel() != len(keys) * page_size:
            log.error(
                "prefix pool: %d host indices for %d pages of %s",
                host_indices.numel(),
                len(keys),
                group,
            )
            return None
        return list(host_indices[::page_size].tolist())

    def _chain(
        self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None
    ) -> tuple[bytes, int]:
        assert self._namespace is not None
        before = (extra_info.prefix_keys if extra_info else None) or []
        chain = self._namespace.keys([*before, *keys])
        return chain, len(chain) // KEY_BYTES - len(keys)


def _name(name: Any) -> str:
    return str(getattr(name, "value", name))


def _trailing(transfer: PoolTransfer) -> int:
    if transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
        return max(1, len(transfer.keys or ()))
    return _ALL_PAGES


def _page(pool: Any, slot: int) -> Bytes:
    """Return the bytes of a page of a host pool."""
    page = pool.get_data_page(slot, flat=True).contiguous().view(torch.uint8)
    return np.asarray(page.numpy())
