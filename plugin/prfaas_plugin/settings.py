"""What the node agent tells the plugin through the engine's environment."""

import json
import os
from dataclasses import dataclass, fields
from typing import Any

from prfaas.config import TransferSection
from prfaas.errors import ConfigError

NODE_VARIABLE = "PRFAAS_NODE"
TRANSFER_VARIABLE = "PRFAAS_TRANSFER"
STATS_SOCKET_VARIABLE = "PRFAAS_STATS_SOCKET"


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """`stats_socket` is empty where nobody asks for counters."""

    node: str
    transfer: TransferSection
    stats_socket: str


def read_settings() -> PluginSettings:
    """Read the settings from the environment; without an agent the defaults apply.

    Raises:
        ConfigError: `PRFAAS_TRANSFER` is not a JSON object of `TransferSection` fields.
    """
    values = _transfer_values(os.environ.get(TRANSFER_VARIABLE, "{}"))
    if "blank_groups" in values:
        values["blank_groups"] = tuple(values["blank_groups"])
    return PluginSettings(
        node=os.environ.get(NODE_VARIABLE, "engine"),
        transfer=TransferSection(**values),
        stats_socket=os.environ.get(STATS_SOCKET_VARIABLE, ""),
    )


def _transfer_values(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{TRANSFER_VARIABLE}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{TRANSFER_VARIABLE}: not a JSON object")
    unknown = values.keys() - {field.name for field in fields(TransferSection)}
    if unknown:
        raise ConfigError(f"{TRANSFER_VARIABLE}: unknown keys {', '.join(sorted(unknown))}")
    return values
