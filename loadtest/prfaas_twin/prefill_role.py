"""A twin as a prefill: computes prompts, and sends their caches layer by layer.

A request waits until a decode has opened its room, is computed, and is answered when all of its
cache was sent: as in SGLang.
"""

import asyncio
import time
from dataclasses import dataclass

import numpy as np

from prfaas.errors import TransferError
from prfaas.transfer.layout import Items
from prfaas_transport import (
    Memory,
    RoomFailed,
    RoomOpened,
    RoomSent,
    SendEvent,
    SendNode,
)
from prfaas_twin.clock import Clock
from prfaas_twin.generation import Finish, Generation
from prfaas_twin.kv_content import AUX, KV, Aux, aux_array, prompt_hash
from prfaas_twin.kv_shape import AUX_BYTES
from prfaas_twin.model import TwinModel
from prfaas_twin.prefill_compute import Part, PrefillCompute, PrefillJob
from prfaas_twin.prompt_cache import prompt_cache
from prfaas_twin.role import KvTransferError, Role, text_of

_AUX_ROWS = 4096
_BOOTSTRAP, _TRANSFER = "Prefill bootstrap failed", "Prefill transfer failed"
_FORWARDED = ""


@dataclass(eq=False, slots=True)
class _Room:
    """A room: opened by a decode, claimed by a request, or both."""

    at_s: float
    opened: "asyncio.Future[RoomOpened]"
    sent: "asyncio.Future[None]"
    is_claimed: bool = False
    sending: "_Sending | None" = None


@dataclass(eq=False, slots=True)
class _Sending:
    """What of a prompt's cache is queued for its room: rows of the slab, by group."""

    room: int
    kv: Items
    state: Items
    prefix_items: int
    aux_row: int
    failure: TransferError | None = None


class PrefillRole(Role):
    """Owns the send node and the compute."""

    first_stage = _BOOTSTRAP

    def __init__(self, model: TwinModel, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._model = model
        self._rooms: dict[int, _Room] = {}
        self._jobs: dict[PrefillJob, _Sending] = {}
        self._done: dict[PrefillJob, asyncio.Future[None]] = {}
        cache, self._event_server = prompt_cache(model)
        self.compute = PrefillCompute(
            clock, model.profile.prefill_s, cache, model.prefill_limits, self
        )
        self._aux = aux_array(_AUX_ROWS)
        self._free_aux = list(range(_AUX_ROWS - 1, -1, -1))
        rows = model.content.num_rows
        self.layout = model.shape.layout(kv=rows, state=rows, aux=_AUX_ROWS)
        self.transport = model.transport()
        arrays = {**model.content.arrays(), AUX: [self._aux]}
        node = model.config.node
        self.node = SendNode(
            layout=self.layout,
            memory=Memory.from_arrays(self.layout, arrays),
            node_id=f"{node.name}/0",
            host=node.host,
            config=self.transport,
            on_event=self._from_thread(self._take_event),
        )

    @property
    def waiting_for_decode(self) -> int:
        """Requests whose room no decode has opened yet."""
        return sum(stage == _BOOTSTRAP for stage in self._stages.values())

    @property
    def in_flight(self) -> int:
        """Requests that are computed and not yet sent."""
        return sum(stage == _TRANSFER for stage in self._stages.values())

    async def close(self) -> None:
        """End all requests, and the lanes."""
        await super().close()
        await asyncio.to_thread(self.node.close)
        if self._event_server is not None:
            await asyncio.to_thread(self._event_server.close)

    # ---- a request -----------------------------------------------------------------------------

    async def _serve(self, generation: Generation) -> None:
        number = generation.ask.room
        room = self._room(number)
        if room.is_claimed:
            raise KvTransferError(_BOOTSTRAP, f"room {number} is in use")
        room.is_claimed = True
        self._stages[generation] = _BOOTSTRAP
        job = PrefillJob(generation.ask.prompt)
        try:
            opened = await self._opened(room)
            sending = room.sending = self._jobs[job] = self._prepare(job, opened)
            self._stages[generation] = _FORWARDED
            self._done[job] = self._loop.create_future()
            self.compute.submit(job)
            await self._done[job]
            self._stages[generation] = _TRANSFER
            await self._finish(room, sending, job)
            seed = self._model.content.seed(job.prompt)
            generation.begin(seed, job.cached_tokens)
            generation.make(1)
            # Of its own one token, a prefill says that none was asked for.
            generation.end(Finish("length", length=0))
        finally:
            self._release(number, room, job, is_done=generation.finish is not None)

    async def _opened(self, room: _Room) -> RoomOpened:
        timeout_s = self._model.config.transfer.room_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await room.opened
        except TimeoutError:
            text = f"no decode opened the room within {timeout_s:g} s"
            raise KvTransferError(_BOOTSTRAP, text) from None
        except TransferError as error:
            raise KvTransferError(_BOOTSTRAP, text_of(error)) from None

    def _prepare(self, job: PrefillJob, opened: RoomOpened) -> _Sending:
        content = self._model.content
        if not self._free_aux:
            raise KvTransferError(_BOOTSTRAP, "no row is left for the first token's metadata")
        return _Sending(
            room=opened.room,
            kv=content.kv_rows(job.prompt),
            state=content.state_rows(job.prompt),
            prefix_items=content.shape.kv_items(opened.prefix_tokens),
            aux_row=self._free_aux.pop(),
        )

    async def _finish(self, room: _Room, sending: _Sending, job: PrefillJob) -> None:
        """Send the metadata, say that this is all, and wait until everything has arrived."""
        aux = Aux(prompt_hash(job.prompt), job.cached_tokens, job.prompt.num_tokens)
        start = sending.aux_row * AUX_BYTES
        self._aux[start : start + AUX_BYTES] = np.frombuffer(aux.pack(), dtype=np.uint8)
        self._submit(sending, AUX, 0, np.array([sending.aux_row]))
        totals = {
            KV: len(sending.kv) - sending.prefix_items,
            self._model.shape.state_group: len(sending.state),
            AUX: 1,
        }
        try:
            if sending.failure is not None:
                raise sending.failure
            self.node.finish(sending.room, totals)
            await room.sent
        except TransferError as error:
            raise KvTransferError(_TRANSFER, text_of(error)) from None

    def _release(self, number: int, room: _Room, job: PrefillJob, *, is_done: bool) -> None:
        if not is_done:
            self.compute.abort(job)
            self.node.abort(number, "prefill_aborted")
        self.node.forget(number)
        self._rooms.pop(number, None)
        self._jobs.pop(job, None)
        self._done.pop(job, None)
        if room.sending is not None:
            self._free_aux.append(room.sending.aux_row)
        for future in (room.opened, room.sent):
            future.cancel()

    def _named(self, generation: Generation) -> str:
        return f"req.rid={generation.ask.rid!r} req.bootstrap_room={generation.ask.room}"

    # ---- what the compute tells ----------------------------------------------------------------

    def started(self, job: PrefillJob) -> None:
        """Queue what the cache holds of the prompt: it is there in every layer."""
        sending = self._jobs.get(job)
        if sending is not None and job.cached_tokens:
            self._submit_kv(sending, 0, job.cached_tokens, None)

    def written(self, part: Part, layer: int) -> None:
        """Queue a layer of what was just computed, and its state where the prompt ends."""
        sending = self._jobs.get(part.job)
        if sending is None:
            return
        self._submit_kv(sending, part.start, part.end, layer)
        if part.is_last:
            self._submit(sending, self._model.shape.state_group, 0, sending.state, layer)

    def done(self, job: PrefillJob) -> None:
        """Let the request go on."""
        future = self._done.get(job)
        if future is not None and not future.done():
            future.set_result(None)

    def _submit_kv(self, sending: _Sending, start: int, end: int, layer: int | None) -> None:
        """Queue the KV items of tokens `start` to `end` that the decode does not hold."""
        first = max(self._model.shape.kv_items(start), sending.prefix_items)
        last = self._model.shape.kv_items(end)
        if first < last:
            self._submit(sending, KV, first - sending.prefix_items, sending.kv[first:last], layer)

    def _submit(
        self, sending: _Sending, group: str, start: int, items: Items, layer: int | None = None
    ) -> None:
        entries = None if layer is None else range(layer, layer + 1)
        if sending.failure is None:
            try:
                self.node.submit(
                    sending.room, group=group, start=start, items=items, entries=entries
                )
            except TransferError as error:
                sending.failure = error

    # ---- what the lanes tell -------------------------------------------------------------------

    def _room(self, number: int) -> _Room:
        room = self._rooms.get(number)
        if room is None:
            self._drop_unclaimed()
            opened, sent = self._loop.create_future(), self._loop.create_future()
            room = self._rooms[number] = _Room(time.monotonic(), opened, sent)
        return room

    def _drop_unclaimed(self) -> None:
        """Forget rooms that a decode opened and whose request never came here."""
        horizon_s = time.monotonic() - self._model.config.transfer.room_timeout_s
        for number, room in list(self._rooms.items()):
            if room.at_s > horizon_s:
                return
            if not room.is_claimed:
                del self._rooms[number]
                self.node.forget(number)

    def _take_event(self, event: SendEvent) -> None:
        match event:
            case RoomOpened():
                room = self._room(event.room)
                if not room.opened.done():
                    room.opened.set_result(event)
            case RoomSent():
                room = self._rooms.get(event.room)  # type: ignore[assignment]
                if room is not None and not room.sent.done():
                    room.sent.set_result(None)
            case RoomFailed():
                self._fail_room(event)
            case _:
                return

    def _fail_room(self, event: RoomFailed) -> None:
        room = self._rooms.get(event.room)
        if room is None:
            return
        error = TransferError(event.reason, event.detail)
        if room.sending is not None:
            room.sending.failure = room.sending.failure or error
        for future in (room.opened, room.sent):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits is told; nobody need be
