"""What a decode needs to know of a prefill worker besides its ranks."""

from dataclasses import asdict, dataclass
from typing import Any, Self

#: Where a bootstrap server takes and gives notes.
PEER_PATH = "/prfaas/peer"


@dataclass(frozen=True, slots=True)
class PeerNote:
    """What a prefill worker says of itself. `backend` names its way to peers of its `region`."""

    rank: int
    region: str
    backend: str
    host: str
    port: int

    @classmethod
    def parse(cls, raw: Any) -> Self:
        """Return the note in a JSON object.

        Raises:
            ValueError: it is none.
        """
        if not isinstance(raw, dict):
            raise ValueError("not a JSON object")
        return cls(
            rank=_number(raw.get("rank")),
            region=_text(raw.get("region")),
            backend=_text(raw.get("backend")),
            host=_text(raw.get("host")),
            port=_number(raw.get("port")),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or len(raw) > 255:
        raise ValueError("region, backend and host are short texts")
    return raw


def _number(raw: Any) -> int:
    if type(raw) is not int or not 0 <= raw <= 65535:
        raise ValueError("rank and port are 0 to 65535")
    return raw
