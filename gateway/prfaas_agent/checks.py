"""What a node agent refuses to start without. Each check returns a problem as one line, or None."""

import importlib.metadata
import socket
from pathlib import Path

from prfaas.config import NodeConfig
from prfaas.errors import PreflightError
from prfaas.records import Role
from prfaas.twin_section import EngineKind
from prfaas_agent.sglang_args import SGLANG_VERSION

SOCKET_PATH_LIMIT_BYTES = 107


def sglang_problem() -> str | None:
    """Check the installed SGLang's version without importing it."""
    try:
        version = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return f"sglang is not installed; install sglang=={SGLANG_VERSION}"
    if version != SGLANG_VERSION:
        return (
            f"sglang {version} is installed; this release works with {SGLANG_VERSION} only:"
            f" install sglang=={SGLANG_VERSION}"
        )
    return None


def model_problem(model_path: str) -> str | None:
    """Check that a model directory can be served."""
    path = Path(model_path)
    if not path.is_dir():
        return f"model directory {model_path} does not exist; give a directory with config.json"
    missing = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    if missing:
        return f"model directory {model_path} has no {' and no '.join(missing)}; add it"
    return None


def port_problem(host: str, port: int) -> str | None:
    """Check that a port can be bound."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except socket.gaierror as error:
            return f"host {host} does not resolve: {error.strerror}; correct node.host"
        except OSError as error:
            return f"cannot listen on {host}:{port}: {error.strerror}; choose a free port"
    return None


def socket_path_problem(path: Path) -> str | None:
    """Check that a Unix socket's path is short enough for the kernel."""
    limit = SOCKET_PATH_LIMIT_BYTES
    if len(str(path).encode()) > limit:
        return f"socket path {path} is longer than {limit} bytes; use a shorter directory"
    return None


def node_problems(config: NodeConfig, *, ports: bool = True) -> list[str]:
    """Return every problem of an engine node; `ports` is false while its engine may be running."""
    engine = config.engine
    assert engine is not None
    found = [model_problem(engine.model_path)]
    if engine.engine is EngineKind.SGLANG:
        found.insert(0, sglang_problem())
    if not config.node.port:
        found.append("node.port: an engine node needs one (1 to 65535)")
    elif ports:
        found.append(port_problem(config.node.host, config.node.port))
        if config.node.agent_port:
            found.append(port_problem(config.node.host, config.node.agent_port))
        if config.node.role is Role.PREFILL or engine.role_switch:
            found.append(port_problem(config.node.host, engine.bootstrap_port))
    return [problem for problem in found if problem]


def refuse(problems: list[str], *, what: str) -> None:
    """Raise all problems at once, as one line.

    Raises:
        PreflightError: when there is any problem.
    """
    if problems:
        raise PreflightError(f"{what}: " + "; ".join(problems))
