"""`prfaasctl profile kv`: the KV-cache geometry of a model, from its config.json."""

from pathlib import Path
from typing import Annotated

import typer

from prfaas.errors import ConfigError


def kv(
    config: Annotated[Path, typer.Option("--config", help="A Hugging Face config.json.")],
) -> None:
    """Show bytes per token, fixed bytes per request and S_kv of a model."""
    raise ConfigError(f"{config}: not yet")
