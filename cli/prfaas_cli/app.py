"""The commands, and what becomes of their failures."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from prfaas.errors import PrfaasError
from prfaas_cli import (
    backup,
    campaign,
    certs,
    chat,
    decisions,
    deploy,
    destroy,
    drill,
    hosts,
    keys,
    link,
    node,
    plan,
    prefix,
    profile,
    schedule,
    simulate,
    status,
    top,
    trace,
    twin,
    upgrade,
)
from prfaas_cli.api_key import ApiKeyFileOption, use_file
from prfaas_cli.failures import INTERRUPTED, ProblemsError, fail

app = typer.Typer(
    name="prfaasctl",
    help="Prefill-as-a-Service for SGLang: deploy, look, change, remove.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("deploy")(deploy.deploy)
app.command("status")(status.status)
app.command("top")(top.top)
app.command("decisions")(decisions.decisions)
app.command("upgrade")(upgrade.upgrade)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("destroy")(destroy.destroy)
app.command("plan")(plan.plan)
app.command("simulate")(simulate.simulate)
app.add_typer(campaign.app, name="campaign")
app.add_typer(certs.app, name="certs")
app.add_typer(keys.app, name="keys")
app.add_typer(node.app, name="node")
app.add_typer(prefix.app, name="prefix")
app.add_typer(hosts.app, name="hosts")
app.add_typer(link.app, name="link")
app.add_typer(drill.app, name="drill")
app.add_typer(profile.app, name="profile")
app.add_typer(schedule.app, name="schedule")
app.add_typer(trace.app, name="trace")
app.add_typer(twin.app, name="twin")
app.command("chat")(chat.chat)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"prfaasctl {version('prfaas')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
    api_key_file: ApiKeyFileOption = None,
) -> None:
    """Take the options that come before a command."""
    use_file(api_key_file, context)


def run_command(arguments: Sequence[str], *, as_json: bool) -> int:
    """Run one command and return the exit code; every expected failure is one line on stderr."""
    try:
        result = app(args=list(arguments), prog_name="prfaasctl", standalone_mode=False)
        if result == INTERRUPTED:
            # What typer makes of a KeyboardInterrupt.
            return fail(["interrupted"], INTERRUPTED, as_json=as_json)
        return result if isinstance(result, int) else 0
    except ProblemsError as error:
        return fail(error.problems, error.exit_code, as_json=as_json)
    except PrfaasError as error:
        return fail([str(error)], error.exit_code, as_json=as_json)
    except typer.TyperException as error:
        return fail([_usage(error)], error.exit_code, as_json=as_json)
    except typer.Abort:
        return fail(["interrupted"], INTERRUPTED, as_json=as_json)
    except BrokenPipeError:
        # The reader of our output went away; nothing more can be said to it.
        return 1
    except OSError as error:
        return fail([str(error)], 1, as_json=as_json)
    except Exception as error:
        # The outermost frame: what nobody foresaw is a bug of ours, and still one line.
        if os.environ.get("PRFAAS_DEBUG"):
            raise
        what = f"internal error: {type(error).__name__}: {error}; PRFAAS_DEBUG=1 shows where"
        return fail([what], 1, as_json=as_json)


def _usage(error: typer.TyperException) -> str:
    """Return a usage error as one line; the whole help text, which a group without a command gives,
    is not one."""
    text = " ".join(error.format_message().split())
    return "a command is missing; see --help" if not text or text.startswith("Usage:") else text
