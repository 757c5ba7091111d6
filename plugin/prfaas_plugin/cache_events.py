"""SGLang's prefix cache as cache events: its own block events, and what they say nothing of.

SGLang tells of blocks only, in Python and in its Rust tree alike. A hybrid model reuses a prefix
only where a state checkpoint is, and a sliding-window model only where the window's slots are
still there, so both are observed where SGLang hands them to the tree and where it frees them:
everything that goes passes through the component's free, whatever made it go.

Enabled by `--kv-events-config '{"publisher": "prfaas"}'` and a path in `PRFAAS_EVENTS_SOCKET`.
Every hook has a guard: what fails here ends the publishing, with a log line, and not the engine.

Source: sglang 0.5.23 srt/mem_cache/unified_radix_cache.py, unified_cache/components,
srt/disaggregation/kv_events.py.
"""

import logging
import os
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prfaas.cache_events import (
    BlockRemoved,
    BlockStored,
    CacheEvent,
    CacheShape,
    Cleared,
    StateRemoved,
    StateStored,
    WindowRemoved,
    WindowStored,
)
from prfaas_transport.event_socket import EventServer

logger = logging.getLogger(__name__)

PUBLISHER = "prfaas"
SOCKET_VARIABLE = "PRFAAS_EVENTS_SOCKET"
_TREE = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"
_COMPONENTS = "sglang.srt.mem_cache.unified_cache.components"
_ON_DEVICE = "GPU"


class CacheObserver:
    """What SGLang's tree did since events were last taken; one per scheduler process.

    `_slots` names the block whose state is in a state slot; `_names` the block in each KV slot of a
    model with sliding windows (0: none).
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._events: list[CacheEvent] = []
        self._slots: dict[int, int] = {}
        self._names: NDArray[np.int64] = np.zeros(0, np.int64)
        self._windowless: set[int] = set()

    @property
    def shape(self) -> CacheShape:
        """What kind of cache it is."""
        tree = self._tree
        has_windows = tree.supports_swa()
        return CacheShape(
            block_tokens=tree.page_size,
            stateful=tree.supports_mamba(),
            window_tokens=int(tree.sliding_window_size) if has_windows else 0,
        )

    def take(self, block_events: Sequence[Any]) -> list[CacheEvent]:
        """Return SGLang's events and ours: blocks first, as the others name them."""
        events = [event for raw in block_events if (event := _block_event(raw)) is not None]
        if any(isinstance(event, Cleared) for event in events):
            self._slots.clear()
            self._names[:] = 0
            self._windowless.clear()
            # What was observed before it is gone as well.
            self._events.clear()
            return events
        events += self._events
        self._events = []
        restored = self._note_blocks(events)
        return [*events, WindowRemoved(restored)] if restored else events

    def _note_blocks(self, events: Sequence[CacheEvent]) -> tuple[int, ...]:
        """Forget windows of blocks that are gone; return stored blocks that are without theirs.

        A stored block counts as one with its window, and windows are only told of when they change.
        """
        removed: set[int] = set()
        stored: set[int] = set()
        for event in events:
            if isinstance(event, BlockRemoved):
                removed.update(event.hashes)
            elif isinstance(event, BlockStored):
                removed.difference_update(event.hashes)
                stored.update(event.hashes)
        self._windowless -= removed
        return tuple(self._windowless & stored)

    def note_insert(self, params: Any, result: Any) -> None:
        """Look at the path that an insert went."""
        if params.mamba_value is not None and not result.mamba_exist:
            name = self._name_of(result.last_device_node)
            slots = params.mamba_value.reshape(-1).tolist()
            self._slots.update(dict.fromkeys(slots, name))
            self._events.append(StateStored((name,)))
        if self._tree.supports_swa():
            self._note_windows(params, result)

    def note_freed_states(self, slots: Any) -> None:
        """Look at the state slots that are freed; those of a request are none of the tree's."""
        freed = [self._slots.pop(slot, None) for slot in slots.reshape(-1).tolist()]
        names = tuple(name for name in freed if name is not None)
        if names:
            self._events.append(StateRemoved(names))

    def note_freed_windows(self, slots: Any) -> None:
        """Look at the KV slots whose sliding-window part is freed."""
        indices = slots.reshape(-1).numpy()
        indices = indices[indices < self._names.size]
        names = {int(name) for name in self._names[indices] if name} - self._windowless
        if names:
            self._windowless |= names
            self._events.append(WindowRemoved(tuple(names)))

    def _note_windows(self, params: Any, result: Any) -> None:
        core, size = self._tree.tree_core, self._tree.page_size
        node = result.last_device_node
        hashes = [*core.get_prefix_hash_values(node), *core.get_hash_values(node)]
        names = [_name(text) for text in hashes]
        slots = self._tree.path_device_indices(node).numpy()[::size]
        count = min(len(names), len(slots))
        if count and slots.max() >= self._names.size:
            grown = np.zeros(int(slots.max()) * 2 + 1, np.int64)
            grown[: self._names.size] = self._names
            self._names = grown
        self._names[slots[:count]] = names[:count]
        tokens = len(params.key)
        gaps = core.swa_tombstone_ranges(params.key, 0, tokens) if tokens else []
        gone = {name for start, end in gaps for name in names[start // size : -(-end // size)]}
        back = self._windowless.intersection(names) - gone
        new = gone - self._windowless
        self._windowless = (self._windowless - back) | new
        if back:
            self._events.append(WindowStored(tuple(back)))
        if new:
            self._events.append(WindowRemoved(tuple(new)))

    def _name_of(self, node: Any) -> int:
        text = self._tree.tree_core.get_last_hash_value(node)
        if text is None:
            raise LookupError("a node of the prefix tree has no hash")
        return _name(text)


class PrfaasEventPublisher:
    """SGLang's side of the event socket; made by its EventPublisherFactory."""

    def __init__(self, attn_dp_rank: int = 0, **_: Any) -> None:
        self._suffix = f".{attn_dp_rank}" if attn_dp_rank else ""
        self._server: EventServer | None = None

    def publish(self, batch: Any) -> None:
        """Publish what `take_events` returned: our events, in a batch of SGLang's."""
        for event in batch.events:
            if isinstance(event, _Taken):
                self._serve(event.shape).publish(event.events)

    def _serve(self, shape: CacheShape) -> EventServer:
        """Return the server; made when events are first taken, as the cache is known then."""
        if self._server is None:
            self._server = EventServer(os.environ[SOCKET_VARIABLE] + self._suffix, shape)
        return self._server

    def shutdown(self) -> None:
        """End the service."""
        if self._server is not None:
            self._server.close()

    def describe_local_source(self, block_size: int) -> None:
        """Say that SGLang itself has nothing to advertise."""
        del block_size


class _Taken:
    """Our events on their way through SGLang from the tree to the publisher."""

    def __init__(self, shape: CacheShape, events: list[CacheEvent]) -> None:
        self.shape = shape
        self.events = events


_observers: dict[int, CacheObserver] = {}


def install() -> None:
    """Register the publisher, and hooks that do nothing in an engine that publishes none."""
    from sglang.srt.disaggregation.kv_events import EventPublisherFactory
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if PUBLISHER not in EventPublisherFactory._registry:  # noqa: SLF001 - it has no other way to ask
        EventPublisherFactory.register_publisher(PUBLISHER, PrfaasEventPublisher)
    hooks = {
        f"{_TREE}.insert": _insert,
        f"{_TREE}.take_events": _take_events,
        f"{_COMPONENTS}.mamba.MambaComponent._free_mamba_value": _free_mamba_value,
        f"{_COMPONENTS}.swa.SWAComponent.apply_component_action": _apply_swa_action,
    }
    for target, hook in hooks.items():
        HookRegistry.register(target, hook, HookType.AROUND)


def _observer(tree: Any) -> CacheObserver | None:
    """Return the observer of a tree that publishes, None for any other."""
    found = _observers.get(id(tree))
    is_wanted = SOCKET_VARIABLE in os.environ and not tree.disable
    if found is None and is_wanted and tree.tree_core.kv_events.enabled:
        found = _observers[id(tree)] = CacheObserver(tree)
    return found


def _guarded(tree: Any, note: Callable[[CacheObserver], object]) -> Any:
    """Run what may fail; a failure ends the observation of the tree for good."""
    try:
        observer = _observer(tree)
        return note(observer) if observer is not None else None
    except Exception:
        # Outermost frame of a hook: an exception in here would kill the scheduler.
        logger.exception("cache events are off: the prefix cache is not what was expected")
        tree.tree_core.kv_events.enabled = False
        _observers.pop(id(tree), None)
        return None


def _insert(original: Callable[..., Any], self: Any, params: Any) -> Any:
    result = original(self, params)
    if not self.disable:
        _guarded(self, lambda observer: observer.note_insert(params, result))
    return result


def _take_events(original: Callable[..., Any], self: Any) -> Any:
    events = original(self)

    def take(observer: CacheObserver) -> list[_Taken]:
        return [_Taken(observer.shape, observer.take(events))]

    if SOCKET_VARIABLE not in os.environ:
        return events
    return _guarded(self, take) or []


def _free_mamba_value(original: Callable[..., Any], self: Any, mamba_value: Any) -> Any:
    _guarded(self.cache, lambda observer: observer.note_freed_states(mamba_value))
    return original(self, mamba_value)


def _apply_swa_action(original: Callable[..., Any], self: Any, action: Any) -> Any:
    if type(action).__name__ == "FreeComponentDeviceSlot":
        for slots in action.indices:
            _guarded(self.cache, methodcaller("note_freed_windows", slots))
    return original(self, action)


def _block_event(raw: Any) -> CacheEvent | None:
    """Return SGLang's event as ours; None where it is of another tier than the engine's memory."""
    kind = type(raw).__name__
    if kind == "AllBlocksCleared":
        return Cleared()
    if raw.medium is not None and raw.medium.value != _ON_DEVICE:
        return None
    if kind == "BlockRemoved":
        return BlockRemoved(tuple(raw.block_hashes))
    return BlockStored(
        hashes=tuple(raw.block_hashes),
        tokens=tuple(raw.token_ids),
        parent=raw.parent_block_hash,
        salt=raw.cache_salt or "",
    )


def _name(text: str) -> int:
    """Return the number by which SGLang's events name the block of a hash."""
    from sglang.srt.mem_cache.utils import hash_str_to_int64

    return int(hash_str_to_int64(text))
