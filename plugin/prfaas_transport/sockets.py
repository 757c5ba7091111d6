"""TCP sockets as the lanes need them."""

import contextlib
import errno
import socket
import sys
from pathlib import Path

from prfaas.errors import ConfigError
from prfaas.transfer.liveness import STUCK_PERIODS
from prfaas_transport import tcp_info
from prfaas_transport.config import TransportConfig

AUTO = "auto"
MODEL_BASED = "bbr"
TCP_RTO_MAX_MS = 44
SO_MAX_PACING_RATE = 47
PACED_RTT_S = 0.002
LONGEST_RTO_MS = 1000
"""Time between attempts while a link is cut, so that bytes flow soon after its return."""


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


def check(config: TransportConfig) -> None:
    """Raise ConfigError if this machine cannot do what the configuration asks of its sockets."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            _set_congestion_control(sock, config)
        except OSError as error:
            raise ConfigError(
                f"transport: congestion_control = {config.congestion_control!r}:"
                f" {error.strerror}; this kernel has {_congestion_controls()}"
            ) from error
    for host in config.source_hosts:
        try:
            family, sockaddr = resolve(host, 0)
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.bind(sockaddr)
        except OSError as error:
            raise ConfigError(
                f"transport: source_hosts: {host!r}: {error.strerror or error}; allowed: addresses"
                " of this machine"
            ) from error


def resolve(host: str, port: int) -> tuple[int, tuple[object, ...]]:
    """Return (family, sockaddr); instant for numeric addresses. Raises: OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, sockaddr = found[0]
    return family, sockaddr


def dial(
    target: tuple[int, tuple[object, ...]], *, source_host: str | None, config: TransportConfig
) -> socket.socket:
    """Return a socket whose connection is under way. Raises: OSError."""
    family, sockaddr = target
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        tune(sock, config)
        if source_host is not None:
            sock.bind((source_host, 0))
        code = sock.connect_ex(sockaddr)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, errno.errorcode.get(code, "connect failed"))
    except OSError:
        sock.close()
        raise
    return sock


def tune(sock: socket.socket, config: TransportConfig) -> None:
    """Set no delay and the congestion control; give up on a silent peer when the lanes do.

    Buffers are left to the kernel's autotuning, which may go beyond what SO_SNDBUF is capped at.
    Raises: OSError.
    """
    stuck_s = STUCK_PERIODS * config.liveness_s
    whole_s = max(1, round(config.liveness_s))
    _set_congestion_control(sock, config)
    with contextlib.suppress(OSError):  # before Linux 6.15 there is no such limit
        sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, LONGEST_RTO_MS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(1000 * stuck_s)))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, whole_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, whole_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, STUCK_PERIODS)


def pace(sock: socket.socket) -> bool:
    """Have the kernel spread a window over a round trip if that is a long one; return whether.

    A sender that does not always have something to send may send a whole window at once, and loses
    much of it where the path's queue is shorter than that: at 1 Gbit/s and 100 ms cubic then gets
    0.77 of what it gets paced. On short paths pacing brings nothing and costs timers. bbr always
    paces. Raises: OSError.
    """
    if tcp_info.least_rtt_s(sock) < PACED_RTT_S:
        return False
    no_limit = (1 << 62).to_bytes(8, sys.byteorder)  # all ones would leave pacing off
    sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, no_limit)
    return True


def better_control(config: TransportConfig) -> str:
    """Return the congestion control for paths that lose packets at random; empty leaves it."""
    if config.congestion_control != AUTO:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            set_congestion_control(sock, MODEL_BASED)
        except OSError:
            return ""
    return MODEL_BASED


def set_congestion_control(sock: socket.socket, name: str) -> None:
    """Set it by the kernel's name of it. Raises: OSError."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


def congestion_control(sock: socket.socket) -> str:
    """Return the kernel's name of it. Raises: OSError."""
    name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.split(b"\0")[0].decode()


def _set_congestion_control(sock: socket.socket, config: TransportConfig) -> None:
    if config.congestion_control not in ("", AUTO):
        set_congestion_control(sock, config.congestion_control)


def _congestion_controls() -> str:
    """Return what may be chosen; those not allowed need CAP_NET_ADMIN."""
    names = {
        which: Path(f"/proc/sys/net/ipv4/tcp_{which}_congestion_control").read_text().split()
        for which in ("available", "allowed")
    }
    return f"{', '.join(names['available'])} (for every user: {', '.join(names['allowed'])})"
