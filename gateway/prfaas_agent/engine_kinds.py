"""What an agent may run: SGLang, or the engine twin. All that differs between them is here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prfaas.config import NodeConfig, SecuritySection, render_node_config
from prfaas.twin_section import EngineKind, TwinSection
from prfaas_agent import engine as engines
from prfaas_agent.engine import Launch
from prfaas_agent.interface import interface_of
from prfaas_agent.model_facts import ModelFacts, read_model_facts
from prfaas_agent.sglang_args import engine_arguments, engine_environment

_SGLANG, _SGLANG_CPU, _TWIN = "sglang.launch_server", "prfaas_cpu.launch", "prfaas_twin"


@dataclass(frozen=True, slots=True)
class Kind:
    """How to run one kind of engine.

    `facts` reads what its record depends on (raises ConfigError); `module` is the Python module
    that a cold start runs.
    """

    facts: Callable[[NodeConfig], ModelFacts]
    arguments: Callable[[NodeConfig, ModelFacts], list[str]]
    environment: Callable[[NodeConfig], Mapping[str, str]]
    module: Callable[[NodeConfig], str]

    def cold_launch(self, config: NodeConfig) -> Launch:
        """Return the launch that starts a Python of its own."""
        return engines.cold_launch(self.module(config))


def kind_of(config: NodeConfig) -> Kind:
    """Return the kind of a node's engine."""
    assert config.engine is not None
    return _KINDS[config.engine.engine]


def _sglang_facts(config: NodeConfig) -> ModelFacts:
    assert config.engine is not None
    return read_model_facts(Path(config.engine.model_path))


def _sglang_environment(config: NodeConfig) -> Mapping[str, str]:
    return engine_environment(config, interface=interface_of(config.node.host))


def _sglang_module(config: NodeConfig) -> str:
    assert config.engine is not None
    return _SGLANG_CPU if config.engine.device == "cpu" else _SGLANG


def _twin_facts(config: NodeConfig) -> ModelFacts:
    section = config.twin or TwinSection()
    return ModelFacts(context_tokens=section.context_tokens, stateful=section.stateful)


def _twin_arguments(config: NodeConfig, _: ModelFacts) -> list[str]:
    """Return the whole configuration: a twin that runs with other settings is known by it."""
    directory = str(Path(config.node.state_dir).absolute())
    node = replace(config.node, state_dir=directory, agent_port=0)
    security = _absolute(config.security)
    return ["--config-text", render_node_config(replace(config, node=node, security=security))]


def _absolute(security: SecuritySection) -> SecuritySection:
    """Return the section with absolute paths: the engine works in a directory of its own."""
    paths = {key: getattr(security, key) for key in ("ca", "cert", "key", "secret_file")}
    found: dict[str, Any] = {k: str(Path(path).absolute()) for k, path in paths.items() if path}
    return replace(security, **found)


def _twin_environment(config: NodeConfig) -> Mapping[str, str]:
    assert config.engine is not None
    return {"OMP_NUM_THREADS": "1", **config.engine.env}


_KINDS = {
    EngineKind.SGLANG: Kind(
        facts=_sglang_facts,
        arguments=engine_arguments,
        environment=_sglang_environment,
        module=_sglang_module,
    ),
    EngineKind.TWIN: Kind(
        facts=_twin_facts,
        arguments=_twin_arguments,
        environment=_twin_environment,
        module=lambda _: _TWIN,
    ),
}
