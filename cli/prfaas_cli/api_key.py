"""The API key that commands show to a gateway: never an argument, which all processes could see."""

import os
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer

from prfaas.errors import ConfigError

KEY_VARIABLE = "PRFAAS_API_KEY"
_MAX_LENGTH = 512

ApiKeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        envvar="PRFAAS_API_KEY_FILE",
        help=f"File with the API key for the gateway; or put the key into {KEY_VARIABLE}.",
    ),
]

_file: ContextVar[Path | None] = ContextVar("api_key_file", default=None)


def use_file(file: Path | None, context: typer.Context) -> None:
    """Have the command of this context take the key from a file."""
    before = _file.set(file)
    context.call_on_close(lambda: _file.reset(before))


def key_headers() -> dict[str, str]:
    """Return the headers that show the key; none where no key is given.

    Raises:
        ConfigError: the file cannot be read, or what is given is no key.
    """
    file = _file.get()
    key, source = os.environ.get(KEY_VARIABLE, "").strip(), KEY_VARIABLE
    if file is not None:
        key, source = read_key(file, "--api-key-file"), str(file)
    if not key and file is None:
        return {}
    check_key(key, source)
    return {"Authorization": f"Bearer {key}"}


def given_file() -> Path | None:
    """Return the file that holds the key of this command, if one was given."""
    file = _file.get()
    return None if file is None else file.resolve()


def check_key(key: str, source: str) -> None:
    """Raise ConfigError, which does not show it, if this is no key."""
    if not key or not key.isascii() or not key.isprintable() or len(key) > _MAX_LENGTH:
        raise ConfigError(f"{source}: not an API key")


def read_key(file: Path, option: str) -> str:
    """Return what a file holds. Raises: ConfigError, naming the option."""
    try:
        return file.read_text().strip()
    except OSError as error:
        raise ConfigError(f"{option} {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {file}: not text") from None
