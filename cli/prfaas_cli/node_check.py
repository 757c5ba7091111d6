"""What `node check` looks at. Every failure says what to do."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prfaas.config import NodeConfig
from prfaas.records import Role
from prfaas_agent.checks import model_problem, port_problem, sglang_problem
from prfaas_agent.security_checks import security_problems

_HOOKS_TIMEOUT_S = 180.0
_ETCD_TIMEOUT_S = 3.0


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
    findings = [_finding("sglang", sglang_problem())]
    if config is None or config.engine is not None:
        findings.extend(_check_hooks(config.engine.device if config and config.engine else "cpu"))
    if config is not None:
        findings.extend(_check_config(config))
    return findings


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Show findings to a person."""
    for finding in findings:
        yield f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name}: {finding.detail}"


def _check_config(config: NodeConfig) -> Iterator[Finding]:
    section = config.engine or config.gateway
    assert section is not None
    yield _finding("model", model_problem(section.model_path))
    yield _finding("security", "; ".join(security_problems(config)) or None)
    yield _finding("etcd", _etcd_problem(config))
    if config.node.role is not Role.GATEWAY or (config.gateway and config.gateway.listen_fd < 0):
        yield _finding("port", port_problem(config.node.host, config.node.port))
    if config.engine and config.engine.bootstrap_port:
        problem = port_problem(config.node.host, config.engine.bootstrap_port)
        yield _finding("bootstrap port", problem)


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


def _etcd_problem(config: NodeConfig) -> str | None:
    import asyncio

    from prfaas.errors import ConfigError
    from prfaas_coord import EtcdClient, EtcdError

    async def ask() -> None:
        async with EtcdClient.of(config, call_timeout_s=_ETCD_TIMEOUT_S) as client:
            await client.get("/prfaas")

    try:
        asyncio.run(ask())
    except (EtcdError, ConfigError) as error:
        return f"{error}; start etcd or correct etcd.endpoints"
    return None
