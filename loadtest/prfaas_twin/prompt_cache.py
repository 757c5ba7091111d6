"""Which prefix cache a prefill has: a silent one, or one whose changes are published."""

from pathlib import Path

from prfaas.blocks import BLOCK_TOKENS, HashedPrompt, PrefixIndex
from prfaas.cache_events import CacheShape
from prfaas.config import NodeConfig
from prfaas_transport.event_socket import EventServer
from prfaas_twin.ask import namespace
from prfaas_twin.model import TwinModel
from prfaas_twin.prefill_compute import PromptCache
from prfaas_twin.published_cache import PublishedCache


def events_path(config: NodeConfig) -> Path:
    """Return the socket on which a node tells of its prefix cache."""
    return Path(config.node.state_dir).absolute() / f"{config.node.name}.events.sock"


def prompt_cache(model: TwinModel) -> tuple[PromptCache, EventServer | None]:
    """Return a new prefix cache, and who publishes its events, if that is asked for.

    Raises:
        OSError: the socket cannot be made.
    """
    section, engine = model.section, model.config.engine
    max_blocks = section.cache_tokens // BLOCK_TOKENS
    checkpoint_tokens = section.chunk_tokens if section.stateful else 0
    if engine is None or not engine.cache_events:
        silent = PrefixIndex(
            stateful=section.stateful,
            checkpoint_tokens=checkpoint_tokens,
            max_blocks=max_blocks,
        )
        return silent, None
    shape = CacheShape(block_tokens=BLOCK_TOKENS, stateful=section.stateful)
    server = EventServer(events_path(model.config), shape)
    cache = PublishedCache(
        server.publish,
        shape=shape,
        root=HashedPrompt.of((), namespace=namespace(model.model_id)).root,
        checkpoint_tokens=checkpoint_tokens,
        max_blocks=max_blocks,
    )
    return cache, server
