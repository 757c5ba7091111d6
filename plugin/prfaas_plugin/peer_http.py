"""SGLang's bootstrap over HTTP, inside mutual TLS where it leaves this host.

A decode asks a prefill's bootstrap server for its ranks, where its lanes are, and whether it is
still there. SGLang does that with `requests` and `http://` addresses, on an engine's own port; with
TLS on, that port is only open on loopback, and the node agent serves it to other hosts under the
same number, to holders of a certificate.

Source: sglang 0.5.23 srt/disaggregation/common/conn.py (every use of `requests`).
"""

import ipaddress
from typing import Any
from urllib.parse import urlsplit

import requests
from requests import Response, adapters

from prfaas.config import SecurityMode, SecuritySection


class PeerSession(requests.Session):
    """A session that speaks TLS to other hosts; files are read anew for every connection."""

    def __init__(self, security: SecuritySection) -> None:
        super().__init__()
        self.trust_env = False
        self._security = security

    def request(self, method: str, url: str | bytes, *args: Any, **more: Any) -> Response:
        """Send a request, inside TLS unless it stays on this host."""
        address = url.decode() if isinstance(url, bytes) else url
        if leaves_host(address):
            address = "https://" + address.removeprefix("http://")
            more |= {
                "verify": self._security.ca,
                "cert": (self._security.cert, self._security.key),
            }
        return super().request(method, address, *args, **more)


class PeerHttp:
    """What SGLang's bootstrap code uses of the module `requests`, and its namesakes here."""

    adapters = adapters
    exceptions = requests.exceptions
    codes = requests.codes

    def __init__(self, security: SecuritySection) -> None:
        self._security = security

    def Session(self) -> requests.Session:  # noqa: N802 - the name in `requests`
        """Return a session; a plain one where there is no TLS."""
        is_tls = self._security.mode is SecurityMode.MTLS
        return PeerSession(self._security) if is_tls else requests.Session()

    def get(self, url: str, **more: Any) -> Response:
        """Send GET."""
        return self._send("GET", url, **more)

    def put(self, url: str, **more: Any) -> Response:
        """Send PUT."""
        return self._send("PUT", url, **more)

    def post(self, url: str, **more: Any) -> Response:
        """Send POST."""
        return self._send("POST", url, **more)

    def _send(self, method: str, url: str, **more: Any) -> Response:
        with self.Session() as session:
            return session.request(method, url, **more)


def install_peer_http(security: SecuritySection) -> PeerHttp:
    """Return the client, and with TLS on make SGLang's bootstrap code use it too."""
    http = PeerHttp(security)
    if security.mode is SecurityMode.MTLS:
        from sglang.srt.disaggregation.common import conn

        conn.requests = http
    return http


def leaves_host(url: str) -> bool:
    """Say whether a URL is of another host, or of this one under an address that others can reach.

    >>> leaves_host("http://10.0.0.1:30100/route"), leaves_host("http://127.0.0.1:30100/route")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
