"""The events of a prefix cache.

A block is named by a hash that stands for its tokens and all tokens before them, as SGLang names
it: a signed 64-bit integer. A state checkpoint and a window are named by the hash of the block
whose last token they belong to, so an event of theirs never comes before their block's.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What kind of cache it is.

    `block_tokens` is the page size; a `stateful` cache reuses a prefix only where it has a state;
    `window_tokens` > 0 is how many tokens before a position must have their sliding-window part.
    """

    block_tokens: int = 1
    stateful: bool = False
    window_tokens: int = 0


@dataclass(frozen=True, slots=True)
class BlockStored:
    """A run of blocks, each the child of the one before; `parent` is the first one's, None: root.

    `tokens` are those of all blocks, in order. `salt` keeps apart caches that must not share.
    """

    hashes: tuple[int, ...]
    tokens: tuple[int, ...]
    parent: int | None = None
    salt: str = ""


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Blocks are gone, with the windows of their tokens; a state of theirs is told by itself."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateStored:
    """The state after these blocks' last tokens is there."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateRemoved:
    """It is gone; the blocks may still be there."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowStored:
    """The sliding-window part of these blocks, which had gone, is back."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowRemoved:
    """The sliding-window part of these blocks is gone; a stored block comes with it."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing is left."""


CacheEvent = (
    BlockStored | BlockRemoved | StateStored | StateRemoved | WindowStored | WindowRemoved | Cleared
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that happened together.

    `session` is new for every life of the publisher, `seq` counts its batches from 1. A `snapshot`
    begins with Cleared and has the `seq` that the cache was at; where there is `more`, the next
    batch belongs to it as well.
    """

    session: str
    seq: int
    events: tuple[CacheEvent, ...]
    snapshot: bool = False
    more: bool = False
