"""Page keys: what an engine calls a page, within all that must not share a cache."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from prfaas.blocks.block_layout import KEY_BYTES


@dataclass(frozen=True, slots=True)
class Namespace:
    """`model`, the engine's memory `layout` (sizes, types, ranks), and a `tenant` where it matters.

    Pages of two namespaces never have equal keys.
    """

    model: str
    layout: str
    tenant: str = ""

    def keys(self, page_hashes: Iterable[str]) -> bytes:
        """Return the keys of pages, 16 bytes each, one after the other.

        A page hash must cover the page's tokens and all before them.

        >>> Namespace("m", "l").keys(["a", "b"]) == Namespace("m", "k").keys(["a", "b"])
        False
        """
        secret = hashlib.blake2b(
            "\0".join((self.model, self.layout, self.tenant)).encode(), digest_size=64
        ).digest()
        return b"".join(
            hashlib.blake2b(page_hash.encode(), digest_size=KEY_BYTES, key=secret).digest()
            for page_hash in page_hashes
        )
