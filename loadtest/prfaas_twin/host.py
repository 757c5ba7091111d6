"""Many twins in one process: one event loop, each with its own ports."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from prfaas.config import NodeConfig
from prfaas.errors import ConfigError
from prfaas.profile import InstanceProfile
from prfaas.profile.catalog import catalog_names, find_profile
from prfaas.profile.document import parse_profile
from prfaas.records import Role
from prfaas.twin_section import TwinSection
from prfaas_twin.instance import TwinInstance, exit_at_once
from prfaas_twin.model import TwinModel
from prfaas_twin.vocabulary import load_vocabulary

logger = logging.getLogger(__name__)

#: How long requests may go on after SIGTERM: less than an agent waits before SIGKILL.
DRAIN_S = 8.0


def read_profile(name_or_file: str) -> InstanceProfile:
    """Return a profile of the catalog, or what a profile file holds.

    Raises:
        ConfigError: it is neither.
    """
    if name_or_file in catalog_names():
        return find_profile(name_or_file)
    try:
        text = Path(name_or_file).read_bytes()
    except (OSError, ValueError):
        names = ", ".join(catalog_names())
        raise ConfigError(
            f"twin.profile = {name_or_file!r}: neither a readable file nor one of {names}"
        ) from None
    return parse_profile(text, f"twin.profile {name_or_file}")


def read_model(config: NodeConfig) -> TwinModel:
    """Return all that follows from a node's configuration.

    Raises:
        ConfigError: naming the key that is wrong.
    """
    if config.engine is None or config.node.role is Role.GATEWAY:
        raise ConfigError(f"{config.node.name}: a twin is a prefill or decode node with [engine]")
    profile = read_profile((config.twin or TwinSection()).profile)
    vocabulary = load_vocabulary(config.engine.model_path)
    model_id = config.engine.model_id or Path(config.engine.model_path).name
    model = TwinModel.of(config, profile, vocabulary, model_id)
    if config.node.role is Role.DECODE:
        model.decode_profile  # noqa: B018 - refuses a profile that cannot decode
    return model


@asynccontextmanager
async def hosting(
    configs: Sequence[NodeConfig], *, crash: Callable[[], None] | None = None
) -> AsyncIterator[list[TwinInstance]]:
    """Run twins while the context lasts; `crash` as of `TwinInstance`.

    Raises:
        ConfigError: a configuration is wrong.
        PreflightError: an address cannot be bound.
    """
    models = [read_model(config) for config in configs]
    twins: list[TwinInstance] = []
    try:
        for model in models:
            twin = TwinInstance(model, crash=crash)
            twins.append(twin)
            await twin.start()
        yield twins
    finally:
        await asyncio.gather(*(twin.close() for twin in twins), return_exceptions=True)


async def run_twins(configs: Sequence[NodeConfig]) -> None:
    """Run twins until SIGTERM or SIGINT, then let running requests end for a few seconds.

    Raises:
        PrfaasError: they cannot start as configured.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with hosting(configs, crash=exit_at_once if len(configs) == 1 else None) as twins:
        await stop.wait()
        logger.info("stopping")
        await asyncio.gather(*(twin.drain(DRAIN_S) for twin in twins))
