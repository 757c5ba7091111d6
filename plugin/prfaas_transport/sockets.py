"""TCP sockets as the lanes need them."""

import errno
import socket

from prfaas.transfer.liveness import SILENT_PERIODS


def listen(host: str, port: int) -> socket.socket:
    """Return a non-blocking listening socket. Raises: OSError."""
    family, sockaddr = resolve(host, port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(sockaddr)
        sock.listen(1024)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def resolve(host: str, port: int) -> tuple[int, tuple[object, ...]]:
    """Return (family, sockaddr); instant for numeric addresses. Raises: OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, sockaddr = found[0]
    return family, sockaddr


def dial(
    target: tuple[int, tuple[object, ...]], *, source_host: str | None, liveness_s: float
) -> socket.socket:
    """Return a socket whose connection is under way. Raises: OSError."""
    family, sockaddr = target
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        tune(sock, liveness_s)
        if source_host is not None:
            sock.bind((source_host, 0))
        code = sock.connect_ex(sockaddr)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, errno.errorcode.get(code, "connect failed"))
    except OSError:
        sock.close()
        raise
    return sock


def tune(sock: socket.socket, liveness_s: float) -> None:
    """Set no delay, and have the kernel give up on a silent peer as the lanes do."""
    silent_s = SILENT_PERIODS * liveness_s
    whole_s = max(1, round(liveness_s))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(1000 * silent_s)))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, whole_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, whole_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_PERIODS)
