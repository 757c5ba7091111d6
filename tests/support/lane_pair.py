"""A sender and a receiver over loopback, each with its counters on a socket."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from waiting import until

from prfaas.transfer import Entry, Group, Layout
from prfaas_transport import (
    Memory,
    ReceiveNode,
    RoomFailed,
    RoomOpened,
    RoomReceived,
    RoomSent,
    SendNode,
    TransportConfig,
    serve_stats,
)

NUM_ITEMS = 64
LAYOUT = Layout((Group("kv", (Entry(16 << 10, NUM_ITEMS),)), Group("aux", (Entry(64, 4),))))


class LanePair:
    """`a-prefill-0/0` sends to `b-decode-0/0`."""

    room_bytes = (16 << 10) * NUM_ITEMS + 64

    def __init__(self, directory: Path) -> None:
        self.send_socket = directory / "send.sock"
        self.receive_socket = directory / "receive.sock"
        self.events: list[Any] = []
        self._rooms = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        config = TransportConfig(lanes=4, chunk_bytes=64 << 10, warm_bytes=0, io_threads=1)
        common: dict[str, Any] = {"layout": LAYOUT, "config": config}
        self.sender = SendNode(
            **common,
            memory=self._memory(),
            node_id="a-prefill-0/0",
            host="127.0.0.1",
            on_event=self.events.append,
        )
        self._stack.callback(self.sender.close)
        self.receiver = ReceiveNode(
            **common,
            memory=self._memory(),
            node_id="b-decode-0/0",
            source_host="127.0.0.1",
            on_event=self.events.append,
        )
        self._stack.callback(self.receiver.close)
        for path, node in (
            (self.send_socket, self.sender),
            (self.receive_socket, self.receiver),
        ):
            self._stack.callback(serve_stats(path, node.stats).close)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def transfer(self, *, rooms: int) -> None:
        """Move rooms, one after the other."""
        for _ in range(rooms):
            room = self._open()
            self.sender.submit(room, group="kv", start=0, items=np.arange(NUM_ITEMS))
            self.sender.submit(room, group="aux", start=0, items=np.arange(1))
            self.sender.finish(room, {"kv": NUM_ITEMS, "aux": 1})
            self._wait(RoomReceived, room)
            self._wait(RoomSent, room)

    def fail_room(self) -> None:
        """Have a room fail on both sides."""
        room = self._open()
        self.receiver.abort(room, "aborted")
        self._wait(RoomFailed, room, times=2)

    def _open(self) -> int:
        self._rooms += 1
        grants = {"kv": np.arange(NUM_ITEMS), "aux": np.arange(1)}
        self.receiver.open_room(self._rooms, address=self.sender.address, grants=grants)
        self._wait(RoomOpened, self._rooms)
        return self._rooms

    def _wait(self, kind: type, room: int, times: int = 1) -> None:
        def count() -> int:
            return sum(isinstance(e, kind) and e.room == room for e in list(self.events))

        until(lambda: count() >= times)

    def _memory(self) -> Memory:
        arrays = {
            group.name: [np.zeros((e.num_items, e.item_bytes), np.uint8) for e in group.entries]
            for group in LAYOUT.groups
        }
        return Memory(LAYOUT, arrays)
