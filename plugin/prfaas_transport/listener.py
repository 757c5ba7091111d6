"""The listening socket of a node."""

import logging
import select
import socket
import time
from collections.abc import Callable

log = logging.getLogger("prfaas.transport")

ACCEPT_PAUSE_S = 0.5
ACCEPTS_PER_TURN = 64


class Listener:
    """Accepts what comes in; pauses when the process cannot take more. One thread uses it."""

    def __init__(self, sock: socket.socket, epoll: select.epoll) -> None:
        self.fd = sock.fileno()
        self.resume_s: float | None = None
        self._sock = sock
        self._epoll = epoll
        epoll.register(self.fd, select.EPOLLIN)

    def accept_some(self, take: Callable[[socket.socket], None]) -> None:
        """Hand waiting connections to `take`; lanes get their turn however many there are."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("accept failed: %s", error)
                self.resume_s = time.monotonic() + ACCEPT_PAUSE_S
                self._epoll.modify(self.fd, 0)
                return
            take(sock)

    def resume(self, now: float) -> None:
        """Accept again, if the pause is over."""
        if self.resume_s is not None and now >= self.resume_s:
            self.resume_s = None
            self._epoll.modify(self.fd, select.EPOLLIN)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
