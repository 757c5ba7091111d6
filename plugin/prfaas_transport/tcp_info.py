"""What the kernel knows of a TCP connection: `struct tcp_info` of `linux/tcp.h`."""

import socket
import struct

from prfaas.transfer.signals import LaneSample

TCP_INFO_BYTES = 256
_UNITS_PER_S = 1_000_000

# The struct only ever grows at its end. Offsets as in Linux 4.10 (delivery rate), 4.19 (bytes
# retransmitted); what an older kernel does not fill in reads as zero.
_APP_LIMITED_BYTE = 7  # bit 0: delivery_rate_app_limited
_LAST_HEARD = struct.Struct("=II")  # tcpi_last_data_recv, tcpi_last_ack_recv, milliseconds ago
_LAST_HEARD_AT = 52
_RTT = struct.Struct("=II")  # tcpi_rtt, tcpi_rttvar, microseconds
_RTT_AT = 68
_BYTES_ACKED_AT = 120
_NOTSENT_AT = 144
_MIN_RTT_AT = 148  # microseconds
_DELIVERY_RATE_AT = 160
_BUSY_AT = 168  # tcpi_busy_time, tcpi_rwnd_limited, tcpi_sndbuf_limited, microseconds
_BYTES_RETRANS_AT = 208
_U64 = struct.Struct("=Q")
_U32 = struct.Struct("=I")
_TIMES = struct.Struct("=QQQ")


def sample(sock: socket.socket, lane: int, now: float) -> LaneSample:
    """Return a reading of the socket of a lane. Raises: OSError."""
    return parse(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES), lane, now)


def host_silent_s(sock: socket.socket) -> float:
    """Return for how long nothing came from the peer's host, not even an acknowledgement.

    Raises: OSError.
    """
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    data_ms, ack_ms = _LAST_HEARD.unpack_from(info, _LAST_HEARD_AT)
    return float(min(data_ms, ack_ms)) / 1000


def least_rtt_s(sock: socket.socket) -> float:
    """Return the shortest round trip so far, of a new connection that of its handshake.

    Raises: OSError.
    """
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return float(_U32.unpack_from(info, _MIN_RTT_AT)[0]) / _UNITS_PER_S


def parse(info: bytes, lane: int, now: float) -> LaneSample:
    """Return what `struct tcp_info` says, in seconds and bytes."""
    info = info.ljust(TCP_INFO_BYTES, b"\0")
    rtt, rttvar = _RTT.unpack_from(info, _RTT_AT)
    busy, rwnd_limited, sndbuf_limited = _TIMES.unpack_from(info, _BUSY_AT)
    return LaneSample(
        lane=lane,
        at_s=now,
        rtt_s=rtt / _UNITS_PER_S,
        rttvar_s=rttvar / _UNITS_PER_S,
        bytes_acked=_U64.unpack_from(info, _BYTES_ACKED_AT)[0],
        bytes_retrans=_U64.unpack_from(info, _BYTES_RETRANS_AT)[0],
        delivery_bytes_per_s=float(_U64.unpack_from(info, _DELIVERY_RATE_AT)[0]),
        busy_s=busy / _UNITS_PER_S,
        rwnd_limited_s=rwnd_limited / _UNITS_PER_S,
        sndbuf_limited_s=sndbuf_limited / _UNITS_PER_S,
        unsent_bytes=_U32.unpack_from(info, _NOTSENT_AT)[0],
        is_app_limited=bool(info[_APP_LIMITED_BYTE] & 1),
    )
