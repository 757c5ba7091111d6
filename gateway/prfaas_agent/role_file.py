"""The role that a node was switched to: kept in a file, so that it outlives agent and engine."""

from dataclasses import replace

from prfaas.config import NodeConfig
from prfaas.records import Role
from prfaas_agent.engine import EngineFiles
from prfaas_agent.state_file import read_json, write_json


def with_role(config: NodeConfig, role: Role) -> NodeConfig:
    """Return the configuration of the node in another role."""
    return replace(config, node=replace(config.node, role=role))


def with_kept_role(config: NodeConfig, files: EngineFiles) -> NodeConfig:
    """Return the configuration in the role the node has now: the last one it was switched to.

    A node that may not change its role has the one in its configuration.
    """
    kept = read_json(files.role) or {}
    may_change = config.engine is not None and config.engine.role_switch
    if not may_change or kept.get("role") not in (Role.PREFILL, Role.DECODE):
        return config
    return with_role(config, Role(kept["role"]))


def keep_role(files: EngineFiles, role: Role) -> None:
    """Remember the role of a node."""
    write_json(files.role, {"role": str(role)})
