"""Where the owner of a machine says which peers and rooms it trusts; by default all of them."""

from collections.abc import Callable
from dataclasses import dataclass

from prfaas.wire import Hello, Open, Welcome

Party = tuple[str, int]
"""A node id and its session."""


def _admit_all(_node_id: str, _session: int, _open: Open) -> str:
    return ""


def _answer_all(_hello: Hello) -> bytes | None:
    return b""


def _no_capability(_receiver: Party, _sender: Party, _open: Open) -> bytes:
    return b""


def _no_auth(_hello: Hello) -> bytes:
    return b""


def _trust_all(_hello: Hello, _welcome: Welcome) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class SenderGuard:
    """What a sender asks before it takes a lane or a room.

    answer: the `auth` of WELCOME for a HELLO; None refuses the lane with `auth_failed`.
    admit: for a receiver's node id, its session and its OPEN, "" or the reason to refuse the room.
    """

    answer: Callable[[Hello], bytes | None] = _answer_all
    admit: Callable[[str, int, Open], str] = _admit_all


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverGuard:
    """What a receiver shows, and asks before it believes a sender.

    greet: the `auth` of a HELLO that has none yet.
    trust: say whether the WELCOME that answers our HELLO is a trusted sender's.
    capability: the capability of an OPEN that has none yet, for us and the sender it goes to.
    """

    greet: Callable[[Hello], bytes] = _no_auth
    trust: Callable[[Hello, Welcome], bool] = _trust_all
    capability: Callable[[Party, Party, Open], bytes] = _no_capability
