"""The command line: `run` is the entry of `prfaasctl` and the one place that exits on errors."""

import json
import os
import sys
from collections.abc import Sequence

import typer

from prfaas.errors import PrfaasError
from prfaas_cli import chat, deploy, destroy, link, node, status
from prfaas_cli.failures import ProblemsError

INTERRUPTED = 130

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
app.command("destroy")(destroy.destroy)
app.add_typer(node.app, name="node")
app.add_typer(link.app, name="link")
app.command("chat")(chat.chat)


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; every expected failure is one line on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    as_json = "--json" in arguments
    try:
        result = app(args=arguments, prog_name="prfaasctl", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except ProblemsError as error:
        return _fail(error.problems, error.exit_code, as_json=as_json)
    except PrfaasError as error:
        return _fail([str(error)], error.exit_code, as_json=as_json)
    except typer.TyperException as error:
        return _fail([_usage(error)], error.exit_code, as_json=as_json)
    except (typer.Abort, KeyboardInterrupt):
        return _fail(["interrupted"], INTERRUPTED, as_json=as_json)
    except BrokenPipeError:
        # The reader of our output went away; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _usage(error: typer.TyperException) -> str:
    """Return a usage error as one line; the whole help text, which a group without a command gives,
    is not one."""
    text = " ".join(error.format_message().split())
    return "a command is missing; see --help" if not text or text.startswith("Usage:") else text


def _fail(problems: Sequence[str], exit_code: int, *, as_json: bool) -> int:
    for problem in problems:
        sys.stderr.write(f"prfaasctl: error: {problem}\n")
    if as_json:
        document = {"error": "; ".join(problems), "problems": list(problems)}
        sys.stdout.write(json.dumps(document) + "\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(run())
