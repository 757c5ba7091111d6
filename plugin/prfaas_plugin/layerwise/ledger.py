"""What of a room was planned layer by layer, so that `send()` covers exactly the rest."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import TransferError
from prfaas_plugin.geometry import KV
from prfaas_plugin.layerwise.held_frees import HeldFrees
from prfaas_plugin.layerwise.send_plan import SendPlan
from prfaas_plugin.layerwise.sends import Sends

Indices = NDArray[np.int64]

PAGES_MOVED = "pages_moved"


class Rest(NamedTuple):
    """Items for positions `start ..` of a group's grant, for all its entries."""

    group: str
    start: int
    items: Indices


class RoomLedger:
    """The plans of one room in the order of their positions; for the scheduler's thread only.

    SGLang's own `start_send_idx` is one chunk late under overlap scheduling, so the next plan
    starts where the last one ended.
    """

    def __init__(self) -> None:
        self._plans: list[SendPlan] = []
        self._num_complete = 0
        self._held: list[HeldFrees] = []
        self._unchecked: list[tuple[int, Indices]] = []

    @property
    def has_states(self) -> bool:
        """Say whether the states were planned: then the last chunk was."""
        return bool(self._plans) and len(self._plans[-1].items) > 1

    def next_position(self, num_sent: int) -> int:
        """Return the first position after those planned and the `num_sent` that `send()` took."""
        return max(num_sent, self._plans[-1].stop if self._plans else 0)

    def add(self, plan: SendPlan) -> None:
        """Take a plan for positions from `next_position` on."""
        self._plans.append(plan)

    def hold(self, held: HeldFrees) -> None:
        """Keep pages that were freed until the room is over."""
        self._held.append(held)

    def release(self) -> None:
        """Give the pages back that were held; the room is over."""
        held, self._held = self._held, []
        for pages in held:
            pages.release()

    def take(
        self, groups: Mapping[str, Indices], start: int, sends: Sends, *, is_written: bool
    ) -> tuple[list[Rest], int]:
        """Return what of a `send()` was not planned; submit what is left of the plans in it.

        `groups` are SGLang's indices, `start` is the position of its KV pages. Unless `is_written`
        the device may not be there yet: then plans go on by their layers' events. A plan's own
        indices can be read once a `send()` covers all of it. Also returned is how many layers had
        to be submitted here.
        Raises: TransferError if SGLang names other pages than were planned and the planned ones
            may have been used for something else, or as `SendNode.submit` does.
        """
        pages = groups.get(KV, np.empty(0, dtype=np.int64))
        rest = list(self._unplanned(pages, start))
        self._unchecked.append((start, pages))
        num_late = 0
        if is_written:
            self._check_pages(start + pages.size)
            num_late = self._complete(start + pages.size, sends)
        last = self._plans[-1] if self._plans else None
        for group, items in groups.items():
            if group == KV:
                continue
            if last is None or group not in last.items:
                rest.append(Rest(group, 0, items))
            else:
                self._check(group, last.items[group], items)
        return rest, num_late

    def _unplanned(self, pages: Indices, start: int) -> Iterator[Rest]:
        at = start
        for _, low, high in self._overlaps(start, start + pages.size):
            if at < low:
                yield Rest(KV, at, pages[at - start : low - start])
            at = high
        if at < start + pages.size:
            yield Rest(KV, at, pages[at - start :])

    def _check_pages(self, stop: int) -> None:
        """Compare SGLang's pages with those of the plans that are written, up to `stop`."""
        unchecked, self._unchecked = self._unchecked, []
        for start, pages in unchecked:
            for plan, low, high in self._overlaps(start, start + pages.size):
                given = pages[low - start : high - start]
                if plan.stop > stop:
                    self._unchecked.append((low, given))
                else:
                    self._check(KV, plan.items[KV][low - plan.start : high - plan.start], given)

    def _overlaps(self, start: int, stop: int) -> Iterator[tuple[SendPlan, int, int]]:
        """Yield the plans that have some of these positions, with the first and the end of them."""
        for plan in self._plans:
            low, high = max(start, plan.start), min(stop, plan.stop)
            if low < high:
                yield plan, low, high

    def _complete(self, stop: int, sends: Sends) -> int:
        num_late = 0
        while self._num_complete < len(self._plans):
            plan = self._plans[self._num_complete]
            if plan.stop > stop:
                break
            num_late += plan.complete(sends)
            self._num_complete += 1
        return num_late

    def _check(self, group: str, planned: Indices, actual: Indices) -> None:
        """Raises: TransferError if what was planned is neither SGLang's choice nor held."""
        if np.array_equal(planned, actual):
            return
        if planned.size == actual.size:
            moved = planned[planned != actual]
            kept = [held.pages(of_window=group != KV) for held in self._held]
            if kept and np.isin(moved, np.concatenate(kept)).all():
                return
        text = f"{group}: the pages that were planned are not the request's any more"
        raise TransferError(PAGES_MOVED, text)
