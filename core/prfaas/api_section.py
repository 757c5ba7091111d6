"""The section `[api]` of a gateway: who may use its HTTP port, and how."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]{1,255}")


@dataclass(frozen=True, slots=True)
class ApiSection:
    """The gateway's port for clients. Files are read again when they change.

    `keys_file`: with it every request needs one of its keys, also when it holds none. `cert` and
    `key`: PEM files; with them the port speaks TLS only. `cors_origins`: origins whose pages may
    use the API from a browser, `*` for all.

    `max_connections` in all and `max_connections_each` of one address. A connection must have its
    handshake and the headers of a request done in `header_timeout_s`, of a further request in
    `idle_timeout_s`; a body must have come in `body_timeout_s`; who reads nothing of an answer for
    `stall_timeout_s` loses it.
    """

    keys_file: str = ""
    cert: str = ""
    key: str = ""
    cors_origins: tuple[str, ...] = ()
    max_connections: int = 16384
    max_connections_each: int = 12288
    header_timeout_s: float = 15.0
    idle_timeout_s: float = 75.0
    body_timeout_s: float = 60.0
    stall_timeout_s: float = 30.0


def api_limits(section: ApiSection) -> list[tuple[str, float, float, float]]:
    """Return key, value, least and most of the section's numbers."""
    return [
        ("api.max_connections", section.max_connections, 1, 1 << 20),
        ("api.max_connections_each", section.max_connections_each, 1, 1 << 20),
        ("api.header_timeout_s", section.header_timeout_s, 0.1, 3600),
        ("api.idle_timeout_s", section.idle_timeout_s, 0.1, 3600),
        ("api.body_timeout_s", section.body_timeout_s, 0.1, 3600),
        ("api.stall_timeout_s", section.stall_timeout_s, 0.1, 3600),
    ]


def api_problems(section: ApiSection) -> Iterator[str]:
    """Yield what is wrong with the section otherwise."""
    if bool(section.cert) != bool(section.key):
        missing = "key" if section.cert else "cert"
        yield f"api.{missing}: missing; TLS needs both cert and key"
    for origin in section.cors_origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            yield f"api.cors_origins: {origin!r:.80}: allowed: https://HOST[:PORT] or *"
