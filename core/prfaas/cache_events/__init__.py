"""What an engine's prefix cache holds and can reuse, told as events.

An engine publishes every change of its cache; who applies all of them to a `CacheMirror` knows how
many tokens of a prompt the engine would take from its cache, without asking it.

* `events` - the events and the batches they come in;
* `codec` - batches as lines of JSON, with limits;
* `mirror` - the cache as the events tell it, and the rule of what can be reused;
* `log` - the publisher's memory: the newest batches for replay, a snapshot for who is too late;
* `feed`, `feed_batch` - the same without tokens, by which a node's agent tells gateways;
* `node_cache` - a node's cache as its feed tells it, in a fixed memory.
"""

from prfaas.cache_events.codec import (
    MAX_LINE_BYTES,
    Cursor,
    decode_batch,
    decode_cursor,
    decode_shape,
    encode_batch,
    encode_cursor,
    encode_shape,
)
from prfaas.cache_events.events import (
    Batch,
    BlockRemoved,
    BlockStored,
    CacheEvent,
    CacheShape,
    Cleared,
    StateRemoved,
    StateStored,
    WindowRemoved,
    WindowStored,
)
from prfaas.cache_events.log import EventLog
from prfaas.cache_events.mirror import CacheMirror

__all__ = [
    "MAX_LINE_BYTES",
    "Batch",
    "BlockRemoved",
    "BlockStored",
    "CacheEvent",
    "CacheMirror",
    "CacheShape",
    "Cleared",
    "Cursor",
    "EventLog",
    "StateRemoved",
    "StateStored",
    "WindowRemoved",
    "WindowStored",
    "decode_batch",
    "decode_cursor",
    "decode_shape",
    "encode_batch",
    "encode_cursor",
    "encode_shape",
]
