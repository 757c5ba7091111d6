"""A prefill scheduler in small: what SGLang 0.5.23 does around layer-wise sending, call by call."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
from layer_device import FakeAllocator, FakeSends, LateDevice, request

from prfaas.transfer.layout import Entry, Group, Layout
from prfaas_plugin.layerwise.entry_map import Kind, LayerKey, Part
from prfaas_plugin.layerwise.pipeline import LayerPipeline
from prfaas_plugin.layerwise.planner import SendPlanner

NUM_LAYERS = 3
WINDOW = 5
MAX_TOKENS = 64
NUM_PAGES = 4096
MAMBA_GROUP, WINDOW_GROUP = "state.0.mamba", "state.1.swa"


class StateType(StrEnum):
    MAMBA = "mamba"
    SWA = "swa"


STATES = ((StateType.MAMBA, MAMBA_GROUP), (StateType.SWA, WINDOW_GROUP))
LAYOUT = Layout(
    (
        Group("kv", tuple(Entry(8, NUM_PAGES) for _ in range(2 * NUM_LAYERS))),
        Group(MAMBA_GROUP, tuple(Entry(8, 64) for _ in range(NUM_LAYERS))),
        Group(WINDOW_GROUP, tuple(Entry(8, 1 << 20) for _ in range(2 * NUM_LAYERS))),
        Group("aux", (Entry(8, 64),)),
    )
)


def _pair(group: str, layer: int) -> tuple[Part, Part]:
    first, second = layer, NUM_LAYERS + layer
    return Part(group, range(first, first + 1)), Part(group, range(second, second + 1))


PARTS = {
    LayerKey(Kind.ATTENTION, layer): (*_pair("kv", layer), *_pair(WINDOW_GROUP, layer))
    for layer in range(NUM_LAYERS)
} | {
    LayerKey(Kind.LINEAR, layer): (Part(MAMBA_GROUP, range(layer, layer + 1)),)
    for layer in range(NUM_LAYERS)
}


@dataclass
class Ask:
    """A prompt, how much of it both sides have cached, and the ends of its prefill chunks."""

    prompt_tokens: int
    decode_pages: int
    cached_pages: int
    chunk_tokens: int


class World:
    """One engine; rooms are the positions of their asks."""

    def __init__(
        self,
        asks: Sequence[Ask],
        *,
        page_size: int,
        readiness: Any = None,
        is_overlap: bool = False,
    ) -> None:
        self.page_size = page_size
        self.is_overlap = is_overlap
        self.device = LateDevice()
        self.sends = FakeSends(LAYOUT, self._check_written)
        rows = np.array(
            [np.arange(MAX_TOKENS) + (1 + room) * MAX_TOKENS for room in range(len(asks))]
        )
        self.rows = SimpleNamespace(
            req_to_token=rows,
            req_index_to_mamba_index_mapping=np.arange(len(asks)) + 7,
            translate_mamba_indices=lambda slots: slots,
        )
        self.allocator = FakeAllocator(page_size)
        self.sliding_window_size = WINDOW
        self.token_to_kv_pool_allocator, self.req_to_token_pool = self.allocator, self.rows
        self.written: dict[LayerKey, set[int]] = {key: set() for key in PARTS}
        self._final: set[int] = set()
        self.pipeline = LayerPipeline(
            self,
            sends=self.sends,
            readiness=readiness or self.device,
            is_live=lambda room: not self.sends.rooms[room].failed,
            make_planner=lambda scheduler, manager, readiness: SendPlanner(
                scheduler, parts=PARTS, states=STATES, readiness=readiness
            ),
        )
        assert self.pipeline.start(self)
        self.requests = [self._open(room, ask) for room, ask in enumerate(asks)]

    def _open(self, room: int, ask: Ask) -> SimpleNamespace:
        base = ask.decode_pages * self.page_size
        req = request(self, room=room, row=room, prompt_tokens=ask.prompt_tokens, base=base)
        req.ask = ask
        # At least one token is computed, whatever is cached.
        req.prefix_len = min(ask.cached_pages, (ask.prompt_tokens - 1) // self.page_size)
        req.prefix_len *= self.page_size
        req.extend_end = req.prefix_len
        req.start_send_idx = base
        for key in PARTS:
            self.written[key].update(self.rows.req_to_token[room, : req.prefix_len])
        self.sends.open(room, {name: len(items) for name, items in self.expected(req).items()})
        return req

    # What SGLang computes

    def pages(self, req: Any, start: int, end: int) -> np.ndarray:
        tokens = self.rows.req_to_token[req.kv.req_pool_idx, start:end]
        return tokens[:: self.page_size] // self.page_size

    def window_pages(self, req: Any) -> np.ndarray:
        end = len(req.origin_input_ids)
        start = max(req.disagg_decode_prefix_len, end - WINDOW) // self.page_size * self.page_size
        tokens = self.rows.req_to_token[req.kv.req_pool_idx, start:end]
        swa = self.allocator.translate_swa_indices_for_transfer(tokens)
        return swa[:: self.page_size] // self.page_size

    def expected(self, req: Any) -> dict[str, np.ndarray]:
        """Return the item of every position of the grant, by group."""
        pages = self.pages(req, req.disagg_decode_prefix_len, len(req.origin_input_ids))
        slot = np.array([req.kv.req_pool_idx + 7])
        return {"kv": pages, MAMBA_GROUP: slot, WINDOW_GROUP: self.window_pages(req), "aux": slot}

    # What SGLang does

    def run_batch(self, batch: Sequence[Any], *, drop: frozenset[LayerKey] = frozenset()) -> None:
        """Launch the next chunk of some requests; layers in `drop` give no event."""
        for req in batch:
            req.prefix_len = req.extend_end
            self._send_prefix(req)
        for req in batch:
            req.extend_end = min(req.extend_end + req.ask.chunk_tokens, len(req.origin_input_ids))
        forward = self.pipeline.forward(SimpleNamespace(reqs=list(batch)))
        ends = [(req, req.extend_end) for req in batch]
        for key in sorted(PARTS, key=lambda key: (key.layer_id, key.kind)):
            self.device.queue(lambda key=key: self._compute(key, ends))
            if forward is not None and key not in drop:
                forward.layer_written(key)
        if forward is not None:
            forward.end()

    def _compute(self, key: LayerKey, ends: Sequence[tuple[Any, int]]) -> None:
        for req, end in ends:
            self.written[key].update(self.rows.req_to_token[req.kv.req_pool_idx, :end].tolist())
            if end >= len(req.origin_input_ids):
                self.written[key].add(-req.kv.req_pool_idx - 1)

    def _send_prefix(self, req: Any) -> None:
        """Send what is cached; under overlap also the chunk before, which may not be computed."""
        has_whole_pages = req.prefix_len % self.page_size == 0
        if req.prefix_len > req.start_send_idx and has_whole_pages:
            self.send(req, req.prefix_len, self.device.event() if self.is_overlap else None)

    def send(self, req: Any, end: int, wait_event: Any = None) -> None:
        """Send what was computed up to a token, as SGLang does some time after the chunk ran."""
        prompt_tokens = len(req.origin_input_ids)
        is_last = end >= prompt_tokens
        if not is_last:
            end -= end % self.page_size
        if end < req.start_send_idx or (end == req.start_send_idx and not is_last):
            return
        sender = req.disagg_kv_sender
        pages = self.pages(req, req.start_send_idx, min(end, prompt_tokens))
        groups = {"kv": pages}
        if is_last:
            groups = self.expected(req) | groups
        start, sender.curr_idx = sender.curr_idx, sender.curr_idx + len(pages)
        req.start_send_idx = end
        self.pipeline.send(req.bootstrap_room, groups, start, wait_event)
        if is_last:
            totals = {name: len(items) for name, items in groups.items()}
            self.sends.finish(req.bootstrap_room, totals | {"kv": sender.curr_idx})

    # What must hold

    def _check_written(self, group: str, entry: int, items: np.ndarray) -> None:
        """Fail if bytes are read that the device has not written."""
        if group == "aux":
            return
        kind = Kind.LINEAR if group == MAMBA_GROUP else Kind.ATTENTION
        written = self.written[LayerKey(kind, entry % NUM_LAYERS)]
        if group == MAMBA_GROUP:
            needed = {-(int(slot) - 7) - 1 for slot in items}
        else:
            offset = 100_000 if group == WINDOW_GROUP else 0
            pages = {int(item) - offset for item in items}
            tokens = (
                int(token)
                for req in self.requests
                for token in self.rows.req_to_token[req.kv.req_pool_idx, : req.extend_end]
            )
            needed = {token for token in tokens if token // self.page_size in pages}
        assert needed <= written, f"{group}[{entry}] read before it was written"

    def assert_sent(self, req: Any) -> None:
        """Check that every position of every entry holds its item, once."""
        room = self.sends.rooms[req.bootstrap_room]
        assert room.totals is not None
        for name, items in self.expected(req).items():
            for entry in range(len(LAYOUT.groups[LAYOUT.index(name)].entries)):
                assert room.items[name, entry] == dict(enumerate(items.tolist())), (name, entry)
