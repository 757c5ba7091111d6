"""What an engine stores in the pool: whose pages, of which sizes, and what a prefix needs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prfaas.blocks.block_layout import KV
from prfaas.blocks.namespace import Namespace
from prfaas.errors import ProtocolError

MAX_GROUPS = 16
_MAX_NAME = 4096
_MAX_ITEM_BYTES = 1 << 30
_MAX_PAGES = 1 << 24


@dataclass(frozen=True, slots=True)
class Space:
    """One worker's part of the pool; all workers of one model and layout have the same.

    `item_bytes` is the size of an item by group. `trailing` says for each group of states of how
    many of a prefix's last pages it must have some; a group that is not named there has not told.
    """

    model: str
    layout: str
    page_tokens: int
    item_bytes: Mapping[str, int]
    trailing: Mapping[str, int] = field(default_factory=dict)

    @property
    def namespace(self) -> Namespace:
        """What its keys are made with."""
        return Namespace(self.model, self.layout)

    @property
    def is_known(self) -> bool:
        """Say whether every group of states has told what a prefix needs of it."""
        return all(name == KV or name in self.trailing for name in self.item_bytes)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Any) -> "Space":
        """Return what `to_json` gave.

        Raises:
            ProtocolError: it is something else.
        """
        if not isinstance(raw, dict):
            raise ProtocolError("space of a pool: not a JSON object")
        return cls(
            model=_text(raw.get("model")),
            layout=_text(raw.get("layout")),
            page_tokens=_whole(raw.get("page_tokens"), 1 << 20),
            item_bytes=_sizes(raw.get("item_bytes"), _MAX_ITEM_BYTES),
            trailing=_sizes(raw.get("trailing"), _MAX_PAGES),
        )


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_NAME:
        raise ProtocolError("space of a pool: model and layout are short texts")
    return value


def _whole(value: Any, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ProtocolError(f"space of a pool: {value!r}: allowed is 1 to {most}")
    return value


def _sizes(raw: Any, most: int) -> dict[str, int]:
    if not isinstance(raw, dict) or len(raw) > MAX_GROUPS:
        raise ProtocolError(f"space of a pool: expected at most {MAX_GROUPS} groups")
    return {_text(name): _whole(value, most) for name, value in raw.items()}
