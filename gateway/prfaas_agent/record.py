"""Make a node's record from its configuration and what its engine says of itself."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prfaas.config import NodeConfig, SecurityMode
from prfaas.records import NodeRecord, Role
from prfaas_agent.engine import Engine
from prfaas_agent.model_facts import ModelFacts
from prfaas_agent.sglang_args import CPU_CONTEXT_TOKENS, LOOPBACK, model_id_of

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def node_url(config: NodeConfig) -> str:
    """Return the HTTP base of a node's engine, as others reach it."""
    host = f"[{config.node.host}]" if ":" in config.node.host else config.node.host
    scheme = "https" if config.security.mode is SecurityMode.MTLS else "http"
    return f"{scheme}://{host}:{config.node.port}"


def agent_url(config: NodeConfig) -> str:
    """Return the HTTP base of a node's agent, as others reach it; empty without a port."""
    if not config.node.agent_port:
        return ""
    return node_url(replace(config, node=replace(config.node, port=config.node.agent_port)))


def with_ports(record: NodeRecord, config: NodeConfig) -> NodeRecord:
    """Return a record with the agent's ports as they are served now, and the host's pool."""
    record = replace(record, agent_url=agent_url(config), pool="", pool_url="")
    if config.pool is None or not config.pool.port:
        return record
    url = node_url(replace(config, node=replace(config.node, port=config.pool.port)))
    path = Path(config.pool.socket).absolute()
    return replace(record, pool=f"{config.node.host}:{path}", pool_url=url)


def own_url(config: NodeConfig) -> str:
    """Return the HTTP base of a node's engine, as its agent reaches it."""
    if config.security.mode is SecurityMode.MTLS:
        return f"http://{LOOPBACK}:{config.node.port}"
    return node_url(config)


def node_record(
    config: NodeConfig,
    engine: Engine,
    facts: ModelFacts,
    info: Mapping[str, Any],
    *,
    layout: Mapping[str, Any] = _NOTHING,
) -> NodeRecord:
    """Return the record.

    `info` is SGLang's `/server_info` and `layout` what the plugin's counters say of it; each is
    empty if it was not to be had.
    """
    section = config.engine
    assert section is not None
    is_prefill = config.node.role is Role.PREFILL
    chunk_tokens = _positive(info.get("chunked_prefill_size"))
    record = NodeRecord(
        name=config.node.name,
        role=config.node.role,
        region=config.node.region,
        url=node_url(config),
        session=engine.session,
        model_id=model_id_of(section),
        model_path=section.model_path,
        bootstrap_host=config.node.host if is_prefill else "",
        bootstrap_port=section.bootstrap_port if is_prefill else 0,
        context_tokens=_context_tokens(section.device, facts, info),
        page_tokens=_positive(info.get("page_size")) or 1,
        checkpoint_tokens=chunk_tokens if facts.stateful else 0,
        stateful=facts.stateful,
        max_running_requests=_positive(info.get("max_running_requests")),
        started_at_s=engine.started_at_s,
        layout=str(layout.get("digest", "")),
        tp_size=_positive(layout.get("tp_size")) or 1,
        residency=config.node.residency,
        role_switch=section.role_switch,
        cache_feed=section.cache_events,
    )
    return with_ports(record, config)


def _context_tokens(device: str, facts: ModelFacts, info: Mapping[str, Any]) -> int:
    """Take the tightest limit that is known: a request must fit the context and the pool."""
    limits = [_positive(info.get("context_length")), _positive(info.get("max_total_num_tokens"))]
    limits.append(facts.context_tokens)
    if device == "cpu" and not limits[0]:
        limits.append(CPU_CONTEXT_TOKENS)
    return min((limit for limit in limits if limit), default=0)


def _positive(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
