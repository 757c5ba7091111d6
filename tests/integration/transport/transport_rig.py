"""Nodes with recorded events, and memory with known bytes."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from prfaas_transport import (
    Entry,
    Group,
    Layout,
    Memory,
    PeerUp,
    ReceiveNode,
    RoomFailed,
    RoomOpened,
    RoomReceived,
    RoomSent,
    SendNode,
    TransportConfig,
)

LAYOUT = Layout(
    (
        Group("kv", tuple(Entry(16 << 10, 1024) for _ in range(4))),
        Group("state.0.mamba", (Entry(300_000, 8),)),
        Group("aux", (Entry(100, 64), Entry(7, 64))),
    )
)
CANARY = 0xEE


class Events:
    """A recorder for `on_event`, with waits."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, event: Any) -> None:
        with self._changed:
            self.all.append(event)
            self._changed.notify_all()

    def wait(self, kind: type, timeout_s: float = 15.0, **fields: Any) -> Any:
        """Return the first event of `kind` with these fields."""

        def found() -> Any:
            for event in self.all:
                if isinstance(event, kind) and all(
                    getattr(event, name) == value for name, value in fields.items()
                ):
                    return event
            return None

        with self._changed:
            assert self._changed.wait_for(found, timeout_s), (kind, fields, self.all)
            return found()

    def clear(self) -> None:
        with self._changed:
            self.all.clear()


def until(condition: Callable[[], Any], timeout_s: float = 15.0) -> None:
    """Wait for a condition that has no event."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "condition not met in time"
        time.sleep(0.01)


def arrays(layout: Layout, seed: int | None) -> dict[str, list[np.ndarray]]:
    """Return random bytes of a seed, or canary bytes."""
    rng = np.random.default_rng(seed)
    return {
        group.name: [
            np.full((e.num_items, e.item_bytes), CANARY, np.uint8)
            if seed is None
            else rng.integers(1, 200, (e.num_items, e.item_bytes), np.uint8)
            for e in group.entries
        ]
        for group in layout.groups
    }


class SendSide:
    """A SendNode over random memory."""

    def __init__(
        self,
        *,
        seed: int = 1,
        layout: Layout = LAYOUT,
        host: str = "127.0.0.1",
        port: int = 0,
        **config: Any,
    ):
        self.arrays = arrays(layout, seed)
        self.events = Events()
        self.node = SendNode(
            layout=layout,
            memory=Memory(layout, self.arrays),
            node_id="prefill",
            host=host,
            port=port,
            config=TransportConfig(**{"warm_bytes": 0, **config}),
            on_event=self.events,
        )

    def send(self, room: int, source: dict[str, np.ndarray], pieces: int = 3) -> None:
        """Submit all of `source` in pieces, and finish."""
        for name, items in source.items():
            at = 0
            for part in np.array_split(items, pieces):
                self.node.submit(room, group=name, start=at, items=part)
                at += part.size
        self.node.finish(room, {name: items.size for name, items in source.items()})


class ReceiveSide:
    """A ReceiveNode over canary memory."""

    def __init__(
        self,
        *,
        node_id: str = "decode",
        layout: Layout = LAYOUT,
        host: str = "127.0.0.1",
        **config: Any,
    ):
        self.arrays = arrays(layout, None)
        self.events = Events()
        self.node = ReceiveNode(
            layout=layout,
            memory=Memory(layout, self.arrays),
            node_id=node_id,
            source_host=host,
            config=TransportConfig(**{"lanes": 4, **config}),
            on_event=self.events,
        )


def picks(seed: int, **counts: int) -> dict[str, np.ndarray]:
    """Return so many random items per group."""
    rng = np.random.default_rng(seed)
    sizes = {group.name: group.num_items for group in LAYOUT.groups}
    return {
        name.replace("state", "state.0.mamba"): rng.permutation(
            sizes[name.replace("state", "state.0.mamba")]
        )[:count]
        for name, count in counts.items()
    }


def transfer(
    send: SendSide,
    receive: ReceiveSide,
    room: int,
    source: dict[str, np.ndarray],
    grants: dict[str, np.ndarray],
) -> None:
    """Run one room to its end on both sides."""
    receive.node.open_room(room, address=send.node.address, grants=grants)
    send.events.wait(RoomOpened, room=room)
    send.send(room, source)
    receive.events.wait(RoomReceived, room=room)
    send.events.wait(RoomSent, room=room)


def assert_arrived(
    send: SendSide,
    receive: ReceiveSide,
    source: dict[str, np.ndarray],
    grants: dict[str, np.ndarray],
) -> None:
    """Check every granted item, and that nothing else was touched."""
    for name, entries in receive.arrays.items():
        granted = grants.get(name, np.empty(0, np.int64))
        outside = np.ones(len(entries[0]), bool)
        outside[granted] = False
        for mine, theirs in zip(entries, send.arrays[name], strict=True):
            assert np.array_equal(mine[granted], theirs[source.get(name, granted[:0])])
            assert (mine[outside] == CANARY).all()


__all__ = ["CANARY", "LAYOUT", "PeerUp", "RoomFailed"]
