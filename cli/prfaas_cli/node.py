"""`prfaasctl node`: run one node, drain it, change its role, check one machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prfaas.errors import ConfigError
from prfaas.names import check_name
from prfaas.records import Role
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

if TYPE_CHECKING:
    from prfaas.config import NodeConfig

app = typer.Typer(
    help="Run one node, drain it, change its role, check one machine.", no_args_is_help=True
)

#: What an agent needs beyond the drain: its own calls, and an engine that captures graphs.
_ANSWER_TIMEOUT_S = 660.0
_DRAIN_ANSWER_S = 60.0
_MAX_DRAIN_S = 3600.0
_MAX_FOLLOW_S = 86400.0

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
    log_to_stderr()
    if parsed.node.role is Role.GATEWAY:
        _run_gateway(parsed)
    else:
        _run_engine_node(parsed)


@app.command("role")
def change_role(
    node: Annotated[str, typer.Argument(help="Name of a node on this machine.")],
    role: Annotated[str, typer.Argument(help="prefill or decode.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also where the region loses its last node of a role.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to finish the requests it has.")] = 120.0,
    config: Annotated[
        Path | None, typer.Option("--config", help="The node's TOML file, if not of a deployment.")
    ] = None,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Drain a node and let its engine take the other role; nothing to do if it has it."""
    from prfaas_cli.agent_control import ask_agent
    from prfaas_cli.output import Output

    check_name("NODE", node)
    if role not in (Role.PREFILL, Role.DECODE):
        raise ConfigError(f"role {role!r}: allowed: prefill, decode")
    if not 0 <= timeout <= _MAX_DRAIN_S:
        raise ConfigError(f"--timeout {timeout:g}: allowed is 0 to {_MAX_DRAIN_S:g} seconds")
    answer = ask_agent(
        _agent_socket(node, config, Place.of(state_dir, name)),
        "/role",
        {"role": role, "force": force, "timeout_s": timeout},
        timeout_s=timeout + _ANSWER_TIMEOUT_S,
    )
    Output(as_json=as_json).result(answer, lambda: [_shown_change(answer)])


DrainTimeout = Annotated[float, typer.Option(help="Seconds to finish the requests it has.")]
ConfigOfNode = Annotated[
    Path | None, typer.Option("--config", help="The node's TOML file, if not of a deployment.")
]


@app.command("drain")
def drain_node(
    node: Annotated[str, typer.Argument(help="Name of a node on this machine.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also where no other node could serve meanwhile.")
    ] = False,
    timeout: DrainTimeout = 120.0,
    config: ConfigOfNode = None,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Let a node finish its requests and get no new ones, until undrain or its next start."""
    check_name("NODE", node)
    path = _agent_socket(node, config, Place.of(state_dir, name))
    _ask_drain(path, draining=True, force=force, timeout_s=timeout, as_json=as_json)


@app.command("undrain")
def undrain_node(
    node: Annotated[str, typer.Argument(help="Name of a node on this machine.")],
    config: ConfigOfNode = None,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Offer a drained node again; nothing to do if it is offered."""
    check_name("NODE", node)
    path = _agent_socket(node, config, Place.of(state_dir, name))
    _ask_drain(path, draining=False, force=False, timeout_s=0.0, as_json=as_json)


def _ask_drain(
    socket: Path, *, draining: bool, force: bool, timeout_s: float, as_json: bool
) -> None:
    from prfaas_cli.agent_control import ask_agent
    from prfaas_cli.output import Output

    if not 0 <= timeout_s <= _MAX_DRAIN_S:
        raise ConfigError(f"--timeout {timeout_s:g}: allowed is 0 to {_MAX_DRAIN_S:g} seconds")
    body = {"draining": draining, "force": force, "timeout_s": timeout_s}
    answer = ask_agent(socket, "/drain", body, timeout_s=timeout_s + _DRAIN_ANSWER_S)
    Output(as_json=as_json).result(answer, lambda: [_shown_drain(answer)])


@app.command("events")
def show_events(
    node: Annotated[str, typer.Argument(help="Name of a node on this machine.")],
    follow_s: Annotated[
        float, typer.Option("--follow", help="Seconds to show changes, as lines of JSON.")
    ] = 0.0,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Show what a node's prefix cache can reuse; with --follow every change of it."""
    from prfaas_cli.node_events import follow, held
    from prfaas_cli.output import Output

    check_name("NODE", node)
    if not 0 <= follow_s <= _MAX_FOLLOW_S:
        raise ConfigError(f"--follow {follow_s:g}: allowed is 0 to {_MAX_FOLLOW_S:g} seconds")
    place = Place.of(state_dir, name)
    place.require_deployment()
    path = place.directory / f"{node}.events.sock"
    if follow_s:
        follow(path, seconds=follow_s)
        return
    found = held(path)
    where = "at a state checkpoint" if found["stateful"] else "anywhere"
    line = (
        f"{node}: {found['blocks']} blocks of {found['block_tokens']} tokens, "
        f"{found['states']} states; a prefix is reused {where}"
    )
    Output(as_json=as_json).result(found, lambda: [line])


def _agent_socket(node: str, config: Path | None, place: Place) -> Path:
    """Return the socket of a node's agent.

    Raises:
        ConfigError: no such node.
    """
    if config is not None:
        parsed = read_config(config)
        if parsed.node.name != node:
            raise ConfigError(f"{config}: node.name = {parsed.node.name}, but asked for {node}")
        return Path(parsed.node.state_dir).absolute() / f"{node}.agent.sock"
    place.require_deployment()
    path = place.directory / f"{node}.agent.sock"
    if not path.exists():
        found = sorted(item.name for item in place.directory.glob("*.agent.sock"))
        names = ", ".join(item.removesuffix(".agent.sock") for item in found)
        raise ConfigError(f"no node {node} runs in {place.directory}; there is: {names or 'none'}")
    return path


def _shown_change(answer: dict[str, Any]) -> str:
    if not answer["changed"]:
        return f"nothing to do: {answer['name']} is {answer['role']} already"
    return (
        f"{answer['name']}: {answer['was']} -> {answer['role']}; "
        f"drained in {answer['drained_s']:.1f} s, switched in {answer['switched_s']:.2f} s"
    )


def _shown_drain(answer: dict[str, Any]) -> str:
    if answer["draining"]:
        return f"{answer['name']}: drained in {answer['drained_s']:.1f} s"
    return f"{answer['name']}: {'offered again' if answer['changed'] else 'nothing to do'}"


@app.command("check")
def check_node(
    config: Annotated[Path | None, typer.Option("--config", help="The node's TOML file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that this machine can run a node; exit 1 if it cannot."""
    from prfaas_cli.node_check import check, is_twin, lines
    from prfaas_cli.output import Output

    output = Output(as_json=as_json)
    node = read_config(config) if config else None
    if node is None or not is_twin(node):
        output.note("loading SGLang to see whether the plugin took; a minute, on two cores")
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


def log_to_stderr() -> None:
    """Log to stderr, as the processes of nodes do."""
    import logging

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
    )
