"""SGLang's arguments and environment: the one table of them.

Source: sglang 0.5.23 `srt/server_args.py`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prfaas.config import EngineSection, NodeConfig, SecurityMode
from prfaas.identity import Identity
from prfaas.records import Role
from prfaas_agent.model_facts import ModelFacts
from prfaas_agent.pool_args import pool_arguments

SGLANG_VERSION = "0.5.23"
LOOPBACK = "127.0.0.1"
CHUNKED_PREFILL_TOKENS = 512
CPU_CONTEXT_TOKENS = 4096
#: The rendezvous port is chosen at random by SGLang; engines that share a namespace, and forks that
#: share a random state, would meet on it.
NCCL_PORT_OFFSET = -5000
#: At page size 1 a decode allocates a prompt's whole length from the sliding-window pool, but sizes
#: that pool by this interval; at SGLang's 128, prompts of some 2,000 tokens would wait for ever.
SWA_EVICTION_INTERVAL_TOKENS = "1024"


def plain_arguments(
    *,
    model_path: str,
    model_id: str,
    host: str,
    port: int,
    facts: ModelFacts,
    device: str = "cpu",
    extra: Sequence[str] = (),
) -> list[str]:
    """Return the arguments of a server that prefills and decodes by itself; `extra` wins."""
    arguments = ["--model-path", model_path, "--served-model-name", model_id]
    arguments += ["--host", host, "--port", str(port)]
    arguments += ["--nccl-port", str(_nccl_port(port))]
    arguments += ["--chunked-prefill-size", str(CHUNKED_PREFILL_TOKENS)]
    if device == "cpu":
        arguments += _cpu_arguments(facts)
    else:
        arguments += ["--device", device]
    return arguments + list(extra)


def engine_arguments(config: NodeConfig, facts: ModelFacts) -> list[str]:
    """Return the arguments of a prefill or decode node's engine."""
    engine = config.engine
    assert engine is not None
    disaggregation = ["--disaggregation-mode", str(config.node.role)]
    disaggregation += ["--disaggregation-transfer-backend", "prfaas"]
    is_prefill = config.node.role is Role.PREFILL
    # An engine that may change its role has the arguments of both.
    if is_prefill or engine.role_switch:
        disaggregation += ["--disaggregation-bootstrap-port", str(engine.bootstrap_port)]
    if engine.device == "cpu" and (not is_prefill or engine.role_switch):
        disaggregation += ["--disaggregation-decode-retraction-backup", "cpu_tensor"]
    if engine.decode_cache:
        disaggregation += ["--disaggregation-decode-enable-radix-cache"]
    if engine.role_switch:
        disaggregation += ["--enable-pd-role-switch"]
    if engine.cache_events:
        disaggregation += ["--kv-events-config", json.dumps({"publisher": "prfaas"})]
    if config.pool is not None:
        disaggregation += pool_arguments(config.pool, model_id=model_id_of(engine))
    return plain_arguments(
        model_path=engine.model_path,
        model_id=model_id_of(engine),
        host=engine_host(config),
        port=config.node.port,
        facts=facts,
        device=engine.device,
        extra=[*disaggregation, *engine.extra_args],
    )


def engine_host(config: NodeConfig) -> str:
    """Return where the engine listens: with TLS on, its agent alone serves it to other hosts."""
    return LOOPBACK if config.security.mode is SecurityMode.MTLS else config.node.host


def cpu_environment(*, host: str, interface: str) -> dict[str, str]:
    """Return what an engine without a GPU needs in its environment, plain or not."""
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "SGLANG_MAMBA_CONV_DTYPE": "float32",
        "SGLANG_SWA_EVICTION_INTERVAL": SWA_EVICTION_INTERVAL_TOKENS,
        "SGLANG_HOST_IP": host,
        "GLOO_SOCKET_IFNAME": interface,
    }


def engine_environment(config: NodeConfig, *, interface: str) -> dict[str, str]:
    """Return what to add to the agent's own environment for the engine."""
    engine = config.engine
    assert engine is not None
    environment = {
        "SGLANG_HOST_IP": config.node.host,
        "PRFAAS_NODE": config.node.name,
        "PRFAAS_REGION": config.node.region,
        "PRFAAS_STATS_SOCKET": str(stats_socket(config)),
        "PRFAAS_TRANSFER": json.dumps(asdict(config.transfer), sort_keys=True),
        "PRFAAS_SECURITY": json.dumps(_security_values(config), sort_keys=True),
        "PRFAAS_IDENTITY": str(identity_of(config)),
    }
    if engine.cache_events:
        environment["PRFAAS_EVENTS_SOCKET"] = str(events_socket(config))
    if config.security.mode is SecurityMode.MTLS:
        interface = "lo"  # gloo's listeners are for this engine's own processes
    if engine.device == "cpu":
        environment |= cpu_environment(host=config.node.host, interface=interface)
    return environment | engine.env


def _security_values(config: NodeConfig) -> dict[str, Any]:
    """Return the section with absolute paths: the engine works in a directory of its own."""
    values = asdict(config.security)
    for key in ("ca", "cert", "key", "secret_file"):
        values[key] = str(Path(values[key]).absolute()) if values[key] else ""
    return values


def identity_of(config: NodeConfig) -> Identity:
    """Return who the node is, as its certificate must say."""
    return Identity(config.node.deployment, config.node.region, config.node.name)


def stats_socket(config: NodeConfig) -> Path:
    """Return the Unix socket on which the engine's plugin serves its transfer counters."""
    return Path(config.node.state_dir).absolute() / f"{config.node.name}.stats.sock"


def events_socket(config: NodeConfig) -> Path:
    """Return the Unix socket on which the engine's plugin publishes the events of its cache."""
    return Path(config.node.state_dir).absolute() / f"{config.node.name}.events.sock"


def model_id_of(engine: EngineSection) -> str:
    """Return the model name that clients use: the configured one or the directory's name."""
    return engine.model_id or Path(engine.model_path).name


def _cpu_arguments(facts: ModelFacts) -> list[str]:
    context_tokens = min(CPU_CONTEXT_TOKENS, facts.context_tokens or CPU_CONTEXT_TOKENS)
    arguments = ["--device", "cpu", "--attention-backend", "torch_native"]
    arguments += ["--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled"]
    arguments += ["--disable-overlap-schedule", "--skip-server-warmup", "--sleep-on-idle"]
    # SGLang counts what other engines took while it loaded as its own: a small share would leave it
    # nothing when several start at once. The pools' sizes are given, so a large one costs nothing.
    arguments += ["--dtype", "float32", "--mem-fraction-static", "0.5"]
    arguments += ["--max-total-tokens", "16384", "--max-running-requests", "8"]
    arguments += ["--context-length", str(context_tokens)]
    if facts.stateful:
        arguments += ["--mamba-radix-cache-strategy", "no_buffer"]
        arguments += ["--mamba-ssm-dtype", "float32", "--max-mamba-cache-size", "2048"]
    return arguments


def _nccl_port(port: int) -> int:
    return port + NCCL_PORT_OFFSET if port + NCCL_PORT_OFFSET > 1024 else port + 1000
