"""`prfaasctl prefix`: cached prefixes that were moved between regions, and to move one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from prfaas.errors import ConfigError, StateError
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

app = typer.Typer(
    help="Cached prefixes between regions: what was moved and why; move one by hand.",
    no_args_is_help=True,
)

_MOVE_TIMEOUT_S = 160.0
_MAX_FILE_BYTES = 16 << 20


@app.command("moves")
def moves(
    limit: Annotated[int, typer.Option(min=1, max=200, help="Show so many.")] = 20,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Show the last moves of prefixes, what was decided, and what the links have left for them."""
    document = _ask(state_dir, name, f"moves?limit={limit}")
    _output(document, lambda: _lines(document), as_json=as_json)


@app.command("move")
def move(
    source: Annotated[str, typer.Option("--from", help="The region that has it.", metavar="R")],
    destination: Annotated[str, typer.Option("--to", help="The region it goes to.", metavar="R")],
    text_file: Annotated[
        Path | None, typer.Option(help="A file with the prompt's text.", dir_okay=False)
    ] = None,
    tokens_file: Annotated[
        Path | None, typer.Option(help="A file with a JSON list of token ids.", dir_okay=False)
    ] = None,
    model: Annotated[str, typer.Option(help="The model; needed where there are several.")] = "",
    cache_salt: Annotated[str, typer.Option(help="The salt of the requests to come.")] = "",
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Bring the longest cached prefix of a prompt to another region's pool, and wait for it.

    Only what is not there moves. Requests that continue the prompt use it.
    """
    body: dict[str, Any] = {"source": source, "destination": destination, "model": model}
    body["cache_salt"] = cache_salt
    if (text_file is None) == (tokens_file is None):
        raise ConfigError("give either --text-file or --tokens-file")
    if text_file is not None:
        body["text"] = _read(text_file)
    elif tokens_file is not None:
        body["tokens"] = _tokens(tokens_file)
    document = _ask(state_dir, name, "moves", body)
    if document["outcome"] == "failed":
        raise StateError(f"{document['source']} to {document['destination']}: {document['detail']}")
    _output(document, lambda: _moved(document), as_json=as_json)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_FILE_BYTES} bytes")
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"{path}: {reason}") from None


def _tokens(path: Path) -> list[int]:
    try:
        found = json.loads(_read(path))
    except ValueError:
        raise ConfigError(f"{path}: not JSON") from None
    if not isinstance(found, list) or any(type(token) is not int for token in found):
        raise ConfigError(f"{path}: not a list of token ids")
    return found


def _ask(
    state_dir: Any, name: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    from prfaas_cli.observation import Observed

    observed = Observed.of(Place.of(state_dir, name))
    if body is None:
        return observed.ask_admin(path)
    return observed.ask_admin(path, body, timeout_s=_MOVE_TIMEOUT_S)


def _output(document: dict[str, Any], lines: Any, *, as_json: bool) -> None:
    from prfaas_cli.output import Output

    Output(as_json=as_json).result(document, lines)


def _moved(document: dict[str, Any]) -> Iterator[str]:
    path = f"{document['source']} to {document['destination']}"
    if document["outcome"] == "unknown":
        yield f"{path}: nothing was moved: {document['detail']}"
    elif document["outcome"] == "nothing":
        yield (
            f"{path}: nothing was moved: {document['tokens']} of {document['prompt_tokens']}"
            " tokens can be resumed from, and the source has no more"
        )
    else:
        yield (
            f"{path}: {document['tokens']} of {document['prompt_tokens']} tokens can be resumed"
            f" from, {document['had_tokens']} before; {document['num_bytes']} bytes in"
            f" {document['seconds']:.2f} s"
        )


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from datetime import datetime

    from prfaas_cli.output import table

    for region, link in document["links"].items():
        yield (
            f"link to {region}: {link['bandwidth']}; moves may take"
            f" {max(link['budget_bytes'], 0)} bytes now"
        )
    verdicts = ", ".join(f"{word} {count}" for word, count in document["verdicts"].items())
    yield f"decided: {verdicts or 'nothing yet'}"
    rows = [["TIME", "CAUSE", "FROM", "TO", "OUTCOME", "TOKENS", "GAINED", "BYTES", "SECONDS"]]
    for one in document["moves"]:
        at = datetime.fromtimestamp(one["at_s"]).strftime("%H:%M:%S")  # noqa: DTZ006 - local
        rows.append(
            [
                at,
                one["cause"],
                one["source"],
                one["destination"],
                one["outcome"],
                str(one["tokens"]),
                str(one["gained_tokens"]),
                str(one["num_bytes"]),
                f"{one['seconds']:.2f}",
            ]
        )
    yield from table(rows) if document["moves"] else ["no move yet"]
