"""What the node agent tells the plugin through the engine's environment."""

import json
import os
from dataclasses import dataclass, fields
from typing import Any

from prfaas.config import SecurityMode, SecuritySection, TransferSection
from prfaas.errors import ConfigError
from prfaas.identity import Identity

NODE_VARIABLE = "PRFAAS_NODE"
TRANSFER_VARIABLE = "PRFAAS_TRANSFER"
SECURITY_VARIABLE = "PRFAAS_SECURITY"
IDENTITY_VARIABLE = "PRFAAS_IDENTITY"
STATS_SOCKET_VARIABLE = "PRFAAS_STATS_SOCKET"


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """`stats_socket` is empty where nobody asks for counters; `identity` is None without TLS."""

    node: str
    transfer: TransferSection
    stats_socket: str
    security: SecuritySection
    identity: Identity | None

    @property
    def checksums(self) -> bool | None:
        """Say whether every chunk gets a digest; None: unless TLS makes it needless."""
        return None if self.transfer.digests == "auto" else self.transfer.digests == "on"


def read_settings() -> PluginSettings:
    """Read the settings from the environment; without an agent the defaults apply.

    Raises:
        ConfigError: `PRFAAS_TRANSFER` or `PRFAAS_SECURITY` is not a JSON object of the section's
            fields, or TLS is on and `PRFAAS_IDENTITY` says not who we are.
    """
    values = _section_values(TRANSFER_VARIABLE, TransferSection)
    if "blank_groups" in values:
        values["blank_groups"] = tuple(values["blank_groups"])
    security = _security()
    is_tls = security.mode is SecurityMode.MTLS
    return PluginSettings(
        node=os.environ.get(NODE_VARIABLE, "engine"),
        transfer=TransferSection(**values),
        stats_socket=os.environ.get(STATS_SOCKET_VARIABLE, ""),
        security=security,
        identity=Identity.parse(os.environ.get(IDENTITY_VARIABLE, "")) if is_tls else None,
    )


def _security() -> SecuritySection:
    values = _section_values(SECURITY_VARIABLE, SecuritySection)
    mode = values.get("mode", SecurityMode.OFF)
    if mode not in list(SecurityMode):
        raise ConfigError(f"{SECURITY_VARIABLE}: mode {mode!r}: allowed: {', '.join(SecurityMode)}")
    return SecuritySection(**values | {"mode": SecurityMode(mode)})


def _section_values(variable: str, section: type[Any]) -> dict[str, Any]:
    try:
        values = json.loads(os.environ.get(variable, "{}"))
    except ValueError as error:
        raise ConfigError(f"{variable}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{variable}: not a JSON object")
    unknown = values.keys() - {field.name for field in fields(section)}
    if unknown:
        raise ConfigError(f"{variable}: unknown keys {', '.join(sorted(unknown))}")
    return values
