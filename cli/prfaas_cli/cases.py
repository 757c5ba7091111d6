"""Cases from the shell's side: a built-in one by name, or a file with the files that it names."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from prfaas.errors import ConfigError

if TYPE_CHECKING:
    from prfaas.planning import Case

PAPER = "paper"

_Read = TypeVar("_Read")


def load_case(name: str) -> "Case":
    """Return the paper's case by its name, or read a TOML file and what it names beside it.

    Raises:
        ConfigError: naming the file and what is wrong.
    """
    from prfaas.planning import case_files, parse_case
    from prfaas.planning.paper import paper_case
    from prfaas_cli.trace_file import read_trace

    if name == PAPER:
        return paper_case()
    path = Path(name)
    if not path.exists() and not path.suffix:
        raise ConfigError(f"case {name!r}: allowed: {PAPER}, or the path of a TOML file")
    text = _text(path)
    named = case_files(text, source=name)
    return parse_case(
        text,
        source=name,
        profiles={file: _named(name, "profile", file, _text) for file in named.profiles},
        trace=_named(name, "requests.trace", named.trace, read_trace) if named.trace else None,
    )


def _named(case: str, key: str, file: str, read: Callable[[Path], _Read]) -> _Read:
    """Read a file that a case names; an error names the case and the key as well."""
    try:
        return read(Path(case).parent / file)
    except ConfigError as error:
        raise ConfigError(f"{case}: {key} = {file!r}: {error}") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
