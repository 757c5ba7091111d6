"""A twin as a decode: receives caches, and makes tokens of what arrived.

A request waits for a place and for memory, opens its room at the prefill, and joins the batch when
all of its cache is here: as in SGLang.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

import numpy as np

from prfaas.errors import TransferError
from prfaas_transport import (
    Memory,
    PeerLost,
    ReceiveEvent,
    ReceiveNode,
    RoomFailed,
    RoomReceived,
)
from prfaas_transport.security import tls_contexts
from prfaas_twin.bootstrap import Directory
from prfaas_twin.clock import Clock
from prfaas_twin.decode_compute import DecodeCompute, Run
from prfaas_twin.generation import Finish, Generation
from prfaas_twin.item_pool import ItemPool, Runs, items_of
from prfaas_twin.kv_content import AUX, KV, Aux, Bytes, aux_array, seed_of
from prfaas_twin.kv_shape import AUX_BYTES
from prfaas_twin.model import PAGE_TOKENS, TwinModel
from prfaas_twin.role import KvTransferError, Role, text_of

_HANDSHAKE, _TRANSFER = "Decode handshake failed", "Decode transfer failed"
_RUNNING = ""
#: SGLang lets so many times a small batch be received beside it.
_SMALL_BATCH, _PREALLOCATED = 32, 2


@dataclass(frozen=True, slots=True)
class _Memory:
    """What one request holds of the pools, by group."""

    kv: Runs
    state: Runs
    aux: Runs


class DecodeRole(Role):
    """Owns the receive node, the memory and the compute."""

    first_stage = _HANDSHAKE

    def __init__(self, model: TwinModel, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._model = model
        self.compute = DecodeCompute(clock, model.decode_profile, self._on_tokens)
        self._runs: dict[Run, tuple[Generation, asyncio.Future[None]]] = {}
        self._received: dict[int, asyncio.Future[None]] = {}
        self._queue: deque[tuple[Generation, asyncio.Future[_Memory]]] = deque()
        most = self.compute.max_batch
        self._places = most * (1 + _PREALLOCATED) if most <= _SMALL_BATCH else most
        self._make_pools()
        self.transport = model.transport()
        tls = tls_contexts(model.config.security)
        self.directory = Directory(
            None if tls is None else tls.http_client, page_tokens=PAGE_TOKENS
        )
        node = model.config.node
        self.node = ReceiveNode(
            layout=self.layout,
            memory=Memory.from_arrays(self.layout, self._arrays),
            node_id=f"{node.name}/0",
            source_host=node.host,
            config=self.transport,
            on_event=self._from_thread(self._take_event),
        )

    def _make_pools(self) -> None:
        """Make pools that hold the longest prompt at least, and no more than can be in use."""
        shape, section = self._model.shape, self._model.section
        item_bytes = shape.item_bytes * shape.layers
        longest = shape.kv_items(section.context_tokens)
        wanted = section.kv_pool_bytes // item_bytes
        kv_items = max(longest, min(wanted, longest * self._places))
        self._pools = {
            KV: ItemPool(kv_items),
            shape.state_group: ItemPool(shape.state_items * self._places),
            AUX: ItemPool(self._places),
        }
        counts = {name: pool.num_items for name, pool in self._pools.items()}
        self.layout = shape.layout(kv=counts[KV], state=counts[shape.state_group], aux=counts[AUX])
        self._arrays: dict[str, list[Bytes]] = {
            name: [np.empty(counts[name] * shape.item_bytes, np.uint8) for _ in range(shape.layers)]
            for name in (KV, shape.state_group)
        }
        self._arrays[AUX] = [aux_array(counts[AUX])]

    @property
    def waiting_for_memory(self) -> int:
        """Requests that have no place or memory yet."""
        return len(self._queue)

    @property
    def in_transfer(self) -> int:
        """Requests whose cache is on its way."""
        return len(self._received)

    @property
    def memory_use(self) -> float:
        """The part of the KV pool that is in use."""
        pool = self._pools[KV]
        return 1 - pool.num_free / pool.num_items

    async def close(self) -> None:
        """End all requests, and the lanes."""
        await super().close()
        await self.directory.close()
        await asyncio.to_thread(self.node.close)

    # ---- a request -----------------------------------------------------------------------------

    async def _serve(self, generation: Generation) -> None:
        memory: _Memory | None = None
        try:
            self._stages[generation] = _HANDSHAKE
            address = await self._handshake(generation)
            self._stages[generation] = _TRANSFER
            memory = await self._reserve(generation)
            await self._receive(generation, address, memory)
            self._stages[generation] = _RUNNING
            await self._decode(generation, memory)
        finally:
            if memory is not None:
                self._give_back(memory)

    async def _handshake(self, generation: Generation) -> tuple[str, int]:
        try:
            return await self.directory.resolve(generation.ask.bootstrap)
        except TransferError as error:
            raise KvTransferError(_HANDSHAKE, str(error)) from None

    async def _reserve(self, generation: Generation) -> _Memory:
        """Wait for a place and for memory, first come, first served."""
        granted: asyncio.Future[_Memory] = self._loop.create_future()
        entry = (generation, granted)
        self._queue.append(entry)
        self._grant()
        try:
            return await granted
        except asyncio.CancelledError:
            if entry in self._queue:
                self._queue.remove(entry)
            if granted.done() and not granted.cancelled():
                self._give_back(granted.result())
            self._grant()
            raise

    def _grant(self) -> None:
        while self._queue:
            generation, granted = self._queue[0]
            if granted.cancelled():
                self._queue.popleft()
                continue
            memory = self._take(generation.ask.prompt.num_tokens)
            if memory is None:
                return
            self._queue.popleft()
            granted.set_result(memory)

    def _take(self, prompt_tokens: int) -> _Memory | None:
        shape = self._model.shape
        wanted = (
            (KV, shape.kv_items(prompt_tokens)),
            (shape.state_group, shape.state_items),
            (AUX, 1),
        )
        if any(self._pools[name].num_free < count for name, count in wanted):
            return None
        runs = [self._pools[name].take(count) or () for name, count in wanted]
        return _Memory(*runs)

    def _give_back(self, memory: _Memory) -> None:
        parts = (memory.kv, memory.state, memory.aux)
        for pool, runs in zip(self._pools.values(), parts, strict=True):
            pool.give_back(runs)
        self._grant()

    async def _receive(
        self, generation: Generation, address: tuple[str, int], memory: _Memory
    ) -> None:
        """Open the room and wait for the whole cache; closed to writes when it returns."""
        room = generation.ask.room
        if room in self._received:
            raise KvTransferError(_TRANSFER, f"room {room} is in use")
        received = self._received[room] = self._loop.create_future()
        grants = {
            KV: items_of(memory.kv),
            self._model.shape.state_group: items_of(memory.state),
            AUX: items_of(memory.aux),
        }
        try:
            self.node.open_room(room, address=address, grants=grants)
            await received
        except TransferError as error:
            raise KvTransferError(_TRANSFER, text_of(error)) from None
        finally:
            del self._received[room]
            if not received.done() or received.cancelled() or received.exception() is not None:
                self.node.abort(room, "decode_aborted")
            self.node.forget(room)

    async def _decode(self, generation: Generation, memory: _Memory) -> None:
        seed, aux = self._read(generation, memory)
        generation.begin(seed, aux.cached_tokens)
        if generation.ask.wanted:
            run = Run(generation.ask.wanted)
            ended: asyncio.Future[None] = self._loop.create_future()
            self._runs[run] = (generation, ended)
            self.compute.admit(run)
            try:
                await ended
            finally:
                self.compute.abort(run)
                self._runs.pop(run, None)
                generation.make(run.made)
        generation.end(Finish("length", length=generation.ask.wanted))

    def _read(self, generation: Generation, memory: _Memory) -> tuple[int, Aux]:
        """Return what the tokens follow from: all that arrived, in the order of the grant."""
        ((row, _),) = memory.aux
        aux = Aux.unpack(self._arrays[AUX][0][row * AUX_BYTES : (row + 1) * AUX_BYTES].tobytes())
        item_bytes = self._model.shape.item_bytes
        parts = [
            array[first * item_bytes : end * item_bytes].data
            for name, runs in ((KV, memory.kv), (self._model.shape.state_group, memory.state))
            for array in self._arrays[name]
            for first, end in runs
        ]
        return seed_of(parts, generation.ask.prompt, aux.prompt_hash), aux

    def _on_tokens(self, run: Run) -> None:
        generation, ended = self._runs[run]
        if generation.ask.stream or run.is_done:
            generation.make(run.made)
        if run.is_done:
            # Now, not when the task wakes up: the last token and the end are one event.
            generation.end(Finish("length", length=generation.ask.wanted))
            if not ended.done():
                ended.set_result(None)

    def _named(self, generation: Generation) -> str:
        ask = generation.ask
        return f"decode_req.req.rid={ask.rid!r} decode_req.req.bootstrap_room={ask.room}"

    # ---- what the lanes tell -------------------------------------------------------------------

    def _take_event(self, event: ReceiveEvent) -> None:
        match event:
            case RoomReceived():
                future = self._received.get(event.room)
                if future is not None and not future.done():
                    future.set_result(None)
            case RoomFailed():
                future = self._received.get(event.room)
                if future is not None and not future.done():
                    future.set_exception(TransferError(event.reason, event.detail))
            case PeerLost():
                if event.address is not None:
                    self.directory.forget(event.address)
            case _:
                return
