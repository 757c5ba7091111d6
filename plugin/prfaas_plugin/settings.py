"""What the node agent tells the plugin through the engine's environment."""

import json
import os
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

from prfaas.config import SecurityMode, SecuritySection
from prfaas.errors import ConfigError
from prfaas.identity import Identity
from prfaas.transfer_section import LocalBackend, Pipelining, TransferSection

NODE_VARIABLE = "PRFAAS_NODE"
TRANSFER_VARIABLE = "PRFAAS_TRANSFER"
SECURITY_VARIABLE = "PRFAAS_SECURITY"
IDENTITY_VARIABLE = "PRFAAS_IDENTITY"
STATS_SOCKET_VARIABLE = "PRFAAS_STATS_SOCKET"
REGION_VARIABLE = "PRFAAS_REGION"
HOST_VARIABLE = "SGLANG_HOST_IP"

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """`stats_socket` is empty where nobody asks for counters; `identity` is None without TLS.

    Engines whose `region` is equal are local to each other; `host` is our address among them.
    """

    node: str
    transfer: TransferSection
    stats_socket: str
    security: SecuritySection
    identity: Identity | None
    region: str = ""
    host: str = "127.0.0.1"

    @property
    def checksums(self) -> bool | None:
        """Say whether every chunk gets a digest; None: unless TLS makes it needless."""
        return None if self.transfer.digests == "auto" else self.transfer.digests == "on"


def read_settings() -> PluginSettings:
    """Read the settings from the environment; without an agent the defaults apply.

    Raises:
        ConfigError: `PRFAAS_TRANSFER` or `PRFAAS_SECURITY` is not a JSON object of the section's
            fields and values, or TLS is on and `PRFAAS_IDENTITY` says not who we are.
    """
    values = _section_values(TRANSFER_VARIABLE, TransferSection)
    for name in ("blank_groups", "source_hosts"):
        if name in values:
            values[name] = tuple(values[name])
    if "pipelining" in values:
        values["pipelining"] = _word(TRANSFER_VARIABLE, "pipelining", values, Pipelining)
    if "local_backend" in values:
        values["local_backend"] = _word(TRANSFER_VARIABLE, "local_backend", values, LocalBackend)
    security = _security()
    is_tls = security.mode is SecurityMode.MTLS
    return PluginSettings(
        node=os.environ.get(NODE_VARIABLE, "engine"),
        transfer=TransferSection(**values),
        stats_socket=os.environ.get(STATS_SOCKET_VARIABLE, ""),
        security=security,
        identity=Identity.parse(os.environ.get(IDENTITY_VARIABLE, "")) if is_tls else None,
        region=os.environ.get(REGION_VARIABLE, ""),
        host=os.environ.get(HOST_VARIABLE, "127.0.0.1"),
    )


def _security() -> SecuritySection:
    values = _section_values(SECURITY_VARIABLE, SecuritySection)
    values.setdefault("mode", SecurityMode.OFF)
    mode = _word(SECURITY_VARIABLE, "mode", values, SecurityMode)
    return SecuritySection(**values | {"mode": mode})


def _word(variable: str, key: str, values: dict[str, Any], allowed: type[Word]) -> Word:
    if values[key] not in list(allowed):
        text = f"{key} {values[key]!r}: allowed: {', '.join(allowed)}"
        raise ConfigError(f"{variable}: {text}")
    return allowed(values[key])


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
