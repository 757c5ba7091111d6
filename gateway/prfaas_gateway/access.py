"""Who may ask what: API keys, and what is allowed where there are none."""

import hmac
import ipaddress

from aiohttp import web

from prfaas.api_keys import KeyRole
from prfaas.reasons import Reason
from prfaas_gateway.client_key import ClientKey
from prfaas_gateway.errors import RequestError
from prfaas_gateway.key_book import KeyBook
from prfaas_gateway.peer_demand import DEMAND_PATH, SESSION_HEADER

CLIENT = web.RequestKey("client", ClientKey)

_FREE = frozenset({"/health", "/ready", "/dashboard"})
"""The dashboard's page holds nothing: what it shows it asks for, with a key."""
_ADMIN = "/admin/"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_SCHEME = "bearer "
_MAX_KEY_LENGTH = 512
_ALLOWED = {
    KeyRole.CLIENT: "requests for tokens",
    KeyRole.METRICS: "/metrics",
}


class Access:
    """The gatekeeper of one gateway. `session` is the gateway's own, which its peers know."""

    def __init__(self, book: KeyBook | None, *, session: str) -> None:
        self._book = book
        self._session = session

    def check(self, request: web.Request) -> ClientKey | None:
        """Return the holder of the request's key; None where none is needed.

        Raises:
            RequestError: no key, a wrong one, or one that does not allow this.
        """
        path = request.path
        if path in _FREE or (path == DEMAND_PATH and self._is_peer(request)):
            return None
        if self._book is None:
            _check_place(request)
            return None
        client = self._holder(request, self._book)
        _check_role(client.entry.role, path)
        return client

    def _is_peer(self, request: web.Request) -> bool:
        """Return whether another gateway asks: it has read our session in etcd."""
        given = request.headers.get(SESSION_HEADER, "")
        return hmac.compare_digest(given.encode(errors="replace"), self._session.encode())

    def _holder(self, request: web.Request, book: KeyBook) -> ClientKey:
        given = request.headers.get("Authorization", "")
        if not given:
            raise _unknown("an API key is needed: Authorization: Bearer KEY")
        if not given[: len(_SCHEME)].lower() == _SCHEME or len(given) > _MAX_KEY_LENGTH:
            raise _unknown("expected Authorization: Bearer KEY")
        client = book.find(given[len(_SCHEME) :].strip())
        if client is None:
            raise _unknown("the API key is not known here")
        return client


def _unknown(message: str) -> RequestError:
    return RequestError(message, reason=Reason.INVALID_API_KEY)


def _check_place(request: web.Request) -> None:
    """Without keys, only who is on this machine may change things, and no page in a browser there:
    browsers name the page's origin, commands do not."""
    if not request.path.startswith(_ADMIN) or request.method in _READING:
        return
    if not _is_loopback(request.remote) or "Origin" in request.headers:
        raise RequestError(
            "without API keys (api.keys_file) only clients on the gateway's machine may do this",
            reason=Reason.NOT_ALLOWED,
        )


def _is_loopback(address: str | None) -> bool:
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _check_role(role: KeyRole, path: str) -> None:
    if role is KeyRole.ADMIN:
        return
    needed = KeyRole.CLIENT
    if path.startswith(_ADMIN):
        needed = KeyRole.ADMIN
    elif path == "/metrics":
        needed = KeyRole.METRICS
    if role is not needed:
        raise RequestError(
            f"this API key is for {_ALLOWED[role]}; {path[:80]} needs one with role {needed}",
            reason=Reason.NOT_ALLOWED,
        )
