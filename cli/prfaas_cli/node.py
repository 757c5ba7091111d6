"""`prfaasctl node`: run one node, check one machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prfaas.errors import ConfigError
from prfaas.records import Role
from prfaas_cli.place import JsonOption

if TYPE_CHECKING:
    from prfaas.config import NodeConfig

app = typer.Typer(help="Run one node, check one machine.", no_args_is_help=True)

ConfigOption = Annotated[Path, typer.Option("--config", help="The node's TOML file.")]


@app.command("run")
def run_node(
    role: Annotated[str, typer.Argument(help="gateway, prefill or decode.")],
    config: ConfigOption,
) -> None:
    """Run one node until SIGTERM: a gateway, or an agent with its engine."""
    parsed = read_config(config)
    if role not in list(Role):
        raise ConfigError(f"role {role!r}: allowed: {', '.join(Role)}")
    if parsed.node.role != role:
        raise ConfigError(f"{config}: node.role = {parsed.node.role}, but asked to run {role}")
    _log_to_stderr()
    if parsed.node.role is Role.GATEWAY:
        _run_gateway(parsed)
    else:
        _run_engine_node(parsed)


@app.command("check")
def check_node(
    config: Annotated[Path | None, typer.Option("--config", help="The node's TOML file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that this machine can run a node; exit 1 if it cannot."""
    from prfaas_cli.node_check import check, lines
    from prfaas_cli.output import Output

    output = Output(as_json=as_json)
    node = read_config(config) if config else None
    output.note("loading SGLang to see whether the plugin took; some 20 s on two cores")
    findings = check(node)
    passed = all(finding.ok for finding in findings)
    document = {"ok": passed, "checks": [finding.to_json() for finding in findings]}
    output.result(document, lambda: lines(findings))
    if not passed:
        raise typer.Exit(1)


def read_config(path: Path) -> "NodeConfig":
    """Return a node's configuration.

    Raises:
        ConfigError: naming file, key, value and what is allowed.
    """
    from prfaas.config import parse_node_config

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"--config {path}: {reason}") from None
    return parse_node_config(text, source=str(path))


def _run_gateway(config: "NodeConfig") -> None:
    import asyncio

    from prfaas_gateway import new_event_loop, run_gateway

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run_gateway(config))


def _run_engine_node(config: "NodeConfig") -> None:
    import asyncio

    from prfaas_agent.agent import run_agent
    from prfaas_agent.registration import registered
    from prfaas_cli.fork_launch import fork_launch

    launch = fork_launch(config)
    asyncio.run(
        run_agent(config, register=lambda record: registered(config, record), fork_launch=launch)
    )


def _log_to_stderr() -> None:
    import logging

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
    )
