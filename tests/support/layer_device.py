"""A device that computes layers some time after they were queued, and sends that record what they
are given: for tests of layer-wise sending without an engine."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import TransferError
from prfaas.transfer.layout import Layout
from prfaas.transfer.reasons import Reason

Indices = NDArray[np.int64]


class LateDevice:
    """A stream: `queue` work, `run` some of it; marks are true once what was queued has run."""

    def __init__(self) -> None:
        self._queued: list[Callable[[], None]] = []
        self._num_run = 0

    def queue(self, work: Callable[[], None]) -> None:
        self._queued.append(work)

    def run(self, num: int | None = None) -> None:
        """Run the next `num` pieces of work, all by default."""
        end = len(self._queued) if num is None else min(len(self._queued), self._num_run + num)
        while self._num_run < end:
            self._queued[self._num_run]()
            self._num_run += 1

    @property
    def num_queued(self) -> int:
        return len(self._queued)

    def run_to(self, num: int) -> None:
        """Have the first `num` pieces of work done."""
        self.run(max(0, num - self._num_run))

    def mark(self) -> Callable[[], bool]:
        num_queued = len(self._queued)
        return lambda: self._num_run >= num_queued

    def host_copy(self, tensor: Any) -> Indices:
        """Return an array that the device fills when it comes to it."""
        values = np.array(tensor, dtype=np.int64)
        late = np.full(values.shape, -1)
        self.queue(lambda: late.__setitem__(slice(None), values))
        return late

    def event(self) -> SimpleNamespace:
        """Return what SGLang passes on with a send that must wait."""
        return SimpleNamespace(query=self.mark(), synchronize=self.run)


@dataclass
class FakeRoom:
    """What was submitted: per group and entry the item of each position."""

    granted: dict[str, int]
    items: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    waiting: list[tuple[int, str, int, Indices]] = field(default_factory=list)
    ready: set[int] = field(default_factory=set)
    totals: dict[str, int] | None = None
    failed: str = ""


class FakeSends:
    """`SendNode` as far as layer-wise sending goes; a position submitted twice is refused loudly.

    `on_submit(group, entry, items)` is called when bytes may be read. `max_submissions` stands for
    a full queue.
    """

    def __init__(
        self,
        layout: Layout,
        on_submit: Callable[[str, int, Indices], None] = lambda group, entry, items: None,
    ) -> None:
        self.layout = layout
        self.rooms: dict[int, FakeRoom] = {}
        self.max_submissions = 1 << 20
        self.num_submissions = 0
        self._on_submit = on_submit
        self._lock = threading.Lock()

    def open(self, room: int, grants: dict[str, int]) -> None:
        self.rooms[room] = FakeRoom(dict(grants))

    def submit(
        self,
        room: int,
        *,
        group: str,
        start: int,
        items: Indices,
        entries: range | None = None,
        ready: int | None = None,
    ) -> None:
        with self._lock:
            state = self._live(room)
            if state.totals is not None:
                raise TransferError(Reason.CLOSED, "submit after finish")
            num_entries = len(self.layout.groups[self.layout.index(group)].entries)
            wanted = range(num_entries) if entries is None else entries
            if not 0 <= wanted.start < wanted.stop <= num_entries:
                raise TransferError(Reason.BAD_ITEMS, f"{group}: entries {wanted}")
            if start < 0 or start + len(items) > state.granted.get(group, 0):
                raise TransferError(Reason.COUNT_MISMATCH, f"{group}: beyond the grant")
            if self.num_submissions >= self.max_submissions:
                raise TransferError(Reason.QUEUE_FULL, "full")
            self.num_submissions += 1
            for entry in wanted:
                held = state.items.setdefault((group, entry), {})
                for position, item in enumerate(items, start):
                    assert position not in held, f"{group}[{entry}]: {position} submitted twice"
                    held[position] = int(item)
                if ready is None or ready in state.ready:
                    self._on_submit(group, entry, items)
                else:
                    state.waiting.append((ready, group, entry, items))

    def mark_ready(self, room: int, token: int) -> None:
        with self._lock:
            if room not in self.rooms:
                return
            self.rooms[room].ready.add(token)
            for waiting, group, entry, items in self.rooms[room].waiting:
                if waiting == token:
                    self._on_submit(group, entry, items)

    def finish(self, room: int, totals: Mapping[str, int]) -> None:
        with self._lock:
            state = self._live(room)
            counts = self.layout.named(self.layout.counts(totals))
            for group in self.layout.groups:
                for entry in range(len(group.entries)):
                    num = len(state.items.get((group.name, entry), {}))
                    if not num == counts[group.name] == state.granted.get(group.name, 0):
                        state.failed = Reason.COUNT_MISMATCH
                        raise TransferError(Reason.COUNT_MISMATCH, f"{group.name}[{entry}]: {num}")
            state.totals = counts

    def abort(self, room: int, reason: str, detail: str = "") -> None:
        with self._lock:
            if room in self.rooms and not self.rooms[room].failed:
                self.rooms[room].failed = reason

    def stats(self) -> dict[str, Any]:
        return {"chunks_acked_total": 0}

    def _live(self, room: int) -> FakeRoom:
        state = self.rooms.get(room)
        if state is None:
            raise TransferError(Reason.UNKNOWN_ROOM, f"room {room}")
        if state.failed:
            raise TransferError(state.failed, "the room has failed")
        return state


class FakeAllocator:
    """SGLang's allocator as far as tables and free groups go; `freed` are pages given back."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.free_group: list[Any] | None = None
        self.freed: list[int] = []

    def translate_kv_indices_for_transfer(self, tokens: Indices) -> Indices:
        return tokens

    def translate_swa_indices_for_transfer(self, tokens: Indices) -> Indices:
        return tokens + 100_000 * self.page_size

    def free_group_begin(self) -> None:
        assert self.free_group is None
        self.free_group = []

    def free_group_end(self) -> None:
        pending, self.free_group = self.free_group or [], None
        for tensor in pending:
            self.free(tensor)

    def free(self, tokens: Any) -> None:
        if self.free_group is not None:
            self.free_group.append(tokens)
        else:
            self.freed += sorted({int(token) // self.page_size for token in tokens.numpy()})


class HostTensor:
    """Integers with the few methods of a tensor that reading them takes."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values, dtype=np.int64)

    def cpu(self) -> "HostTensor":
        return self

    def numpy(self) -> Indices:
        return self._values


def request(
    manager: Any, *, room: int, row: int, prompt_tokens: int, base: int = 0
) -> SimpleNamespace:
    """Return a request as SGLang's scheduler has it, its destinations known."""
    sender = SimpleNamespace(kv_mgr=manager, curr_idx=0, conclude_state=None)
    return SimpleNamespace(
        bootstrap_room=room,
        disagg_kv_sender=sender,
        disagg_decode_prefix_len=base,
        pending_bootstrap=False,
        origin_input_ids=range(prompt_tokens),
        extend_end=0,
        kv=SimpleNamespace(req_pool_idx=row),
    )
