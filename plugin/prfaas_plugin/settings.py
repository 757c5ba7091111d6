"""What the node agent tells the plugin through the engine's environment."""

import json
import os
from dataclasses import dataclass, fields

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
    text = os.environ.get(TRANSFER_VARIABLE, "{}")
    try:
        raw = json.loads(text)
        values = {
            field.name: raw.pop(field.name)
            for field in fields(TransferSection)
            if field.name in raw
        }
        if raw:
            raise ConfigError(f"{TRANSFER_VARIABLE}: unknown keys {', '.join(raw)}")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{TRANSFER_VARIABLE}: not a JSON object: {error}") from None
    if "blank_groups" in values:
        values["blank_groups"] = tuple(values["blank_groups"])
    return PluginSettings(
        node=os.environ.get(NODE_VARIABLE, "engine"),
        transfer=TransferSection(**values),
        stats_socket=os.environ.get(STATS_SOCKET_VARIABLE, ""),
    )
