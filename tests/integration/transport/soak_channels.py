"""Lanes whose system calls take a while before they touch memory, as on a busy machine."""

import random
import socket
import time

from soak_memory import SCRIBBLE

from prfaas_transport.channel import Channel, PlainChannel, PlainChannels

SHARE = 0.2
LONGEST_S = 0.006
LEAST_PAYLOAD_BYTES = 90  # longer than frames that come in payload's place


class DawdlingChannel(PlainChannel):
    """A plain channel that is not always quick, and looks at what it sends."""

    def __init__(self, sock: socket.socket, problems: list[str]) -> None:
        super().__init__(sock)
        self._problems = problems
        self.send = self._send  # type: ignore[method-assign]

    def receive_into(self, views: list[memoryview]) -> int:
        _dawdle()
        return super().receive_into(views)

    def _send(self, views: list[memoryview]) -> int:
        _dawdle()
        for view in views:
            if len(view) >= LEAST_PAYLOAD_BYTES and view[0] == view[-1] == SCRIBBLE:
                self._problems.append(f"{len(view)} bytes of memory that was let go are sent")
        return self._sock.sendmsg(views)


class DawdlingChannels(PlainChannels):
    """Makes them; `problems` takes what was sent of memory that was let go."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems

    def wrap(self, sock: socket.socket, *, server_side: bool) -> Channel:
        return DawdlingChannel(sock, self._problems)


def _dawdle() -> None:
    if random.random() < SHARE:
        time.sleep(random.random() * LONGEST_S)
