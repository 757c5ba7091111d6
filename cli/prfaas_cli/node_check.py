"""What `node check` looks at. Every failure says what to do."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prfaas.config import NodeConfig
from prfaas.errors import ConfigError
from prfaas.records import NodeRecord, Role
from prfaas.twin_section import EngineKind
from prfaas_agent.checks import model_problem, port_problem, sglang_problem
from prfaas_agent.security_checks import security_problems
from prfaas_cli import peer_check
from prfaas_cli.api_check import api_problems

_HOOKS_TIMEOUT_S = 180.0
_AFTER_IDLE = Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `detail` of a failure says what to do."""

    name: str
    ok: bool
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def check(config: NodeConfig | None) -> list[Finding]:
    """Look at everything that a node on this machine needs, with its configuration if given."""
    if config is not None and is_twin(config):
        findings = [_finding("twin", _twin_problem(config))]
    else:
        findings = [_finding("sglang", sglang_problem())]
        if config is None or config.engine is not None:
            device = config.engine.device if config and config.engine else "cpu"
            findings.extend(_check_hooks(device))
    if config is not None:
        findings.extend(_check_config(config))
    return findings


def is_twin(config: NodeConfig) -> bool:
    """Say whether a node's engine is the twin, which needs no SGLang."""
    return config.engine is not None and config.engine.engine is EngineKind.TWIN


def _twin_problem(config: NodeConfig) -> str | None:
    from prfaas_twin.host import read_model

    try:
        read_model(config)
    except ConfigError as error:
        return str(error)
    return None


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Show findings to a person."""
    for finding in findings:
        yield f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name}: {finding.detail}"


def _check_config(config: NodeConfig) -> Iterator[Finding]:
    section = config.engine or config.gateway
    assert section is not None
    yield _finding("model", model_problem(section.model_path))
    if config.engine:
        yield tcp_finding(_AFTER_IDLE)
    if config.engine and not is_twin(config):
        from prfaas_plugin.local_backend import package_problem

        yield _finding("local backend", package_problem(config.transfer.local_backend))
    yield _finding("security", "; ".join(security_problems(config)) or None)
    if config.gateway:
        yield _finding("api", "; ".join(api_problems(config.api)) or None)
    nodes, problem = peer_check.registered(config)
    yield _finding("etcd", problem)
    if config.node.name in {node.name for node in nodes}:
        yield Finding("ports", ok=True, detail=f"{config.node.name} is running and has them")
    else:
        yield from _check_ports(config)
    if nodes:
        yield from _check_peers(config, nodes)


def tcp_finding(after_idle: Path) -> Finding:
    """Say whether lanes keep their windows while they are idle; `after_idle` is the sysctl's file.

    It works without, only more slowly.
    """
    try:
        is_good = after_idle.read_text().strip() == "0"
    except OSError:
        return Finding("tcp", ok=True, detail=f"not known: {after_idle} cannot be read")
    if is_good:
        return Finding("tcp", ok=True, detail="good")
    advice = "the first transfer after a pause is slower than it could be over a long distance"
    fix = "sysctl -w net.ipv4.tcp_slow_start_after_idle=0"
    return Finding("tcp", ok=True, detail=f"{advice}; to change that: {fix}")


def _check_ports(config: NodeConfig) -> Iterator[Finding]:
    if config.node.role is not Role.GATEWAY or (config.gateway and config.gateway.listen_fd < 0):
        yield _finding("port", port_problem(config.node.host, config.node.port))
    if config.node.agent_port:
        yield _finding("agent port", port_problem(config.node.host, config.node.agent_port))
    if config.engine and config.engine.bootstrap_port:
        problem = port_problem(config.node.host, config.engine.bootstrap_port)
        yield _finding("bootstrap port", problem)


def _check_peers(config: NodeConfig, nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Look at the nodes that are registered: do they fit, and can they be reached from here."""
    yield _finding("layout", peer_check.layout_problems(nodes))
    problems = list(peer_check.unreachable(config, nodes))
    for name, problem in problems:
        yield _finding(name, problem)
    if not problems:
        names = ", ".join(sorted(node.name for node in nodes))
        yield Finding("peers", ok=True, detail=f"all answer: {names}")


def _finding(name: str, problem: str | None) -> Finding:
    return Finding(name, ok=problem is None, detail=problem or "good")


def _check_hooks(device: str) -> list[Finding]:
    """Ask the plugin in a process of its own: it has to import SGLang."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _hooks_program(device)],
            capture_output=True,
            timeout=_HOOKS_TIMEOUT_S,
            check=False,
        )
        results = json.loads(done.stdout.splitlines()[-1])
        return [
            Finding(f"plugin {item['name']}", bool(item["ok"]), str(item["detail"]))
            for item in results
        ]
    except subprocess.TimeoutExpired:
        return [Finding("plugin", ok=False, detail=f"no answer in {_HOOKS_TIMEOUT_S:.0f} s")]
    except (ValueError, IndexError, KeyError, TypeError):
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        detail = f"{' '.join(said) or 'no output'}; run python -m prfaas_plugin.check"
        return [Finding("plugin", ok=False, detail=detail)]


def _hooks_program(device: str) -> str:
    """Return the check as a program; without a GPU SGLang imports only with the CPU kit's help."""
    prepare = "from prfaas_cpu.launch import preload; preload();" if device == "cpu" else ""
    return f"import sys; {prepare} from prfaas_plugin.check import main; sys.exit(main())"
