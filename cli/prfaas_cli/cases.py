"""Cases from the shell's side: a built-in one by name, or a file with the files that it names."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from prfaas.errors import ConfigError

if TYPE_CHECKING:
    from prfaas.planning import Case

PAPER = "paper"
_LARGEST_CASE_BYTES = 1 << 20

_Read = TypeVar("_Read")


def load_case(name: str) -> "Case":
    """Return the paper's case by its name, or read a TOML file and what it names beside it.

    Raises:
        ConfigError: naming the file and what is wrong.
    """
    from prfaas.planning import case_files, parse_case
    from prfaas.planning.paper import paper_case
    from prfaas_cli.profile_files import exists
    from prfaas_cli.trace_file import read_trace

    if name == PAPER:
        return paper_case()
    path = Path(name)
    if not exists(path) and not path.suffix:
        raise ConfigError(f"case {name!r}: allowed: {PAPER}, or the path of a TOML file")
    text = _text(path, most_bytes=_LARGEST_CASE_BYTES)
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


def _text(path: Path, *, most_bytes: int = 64 << 20) -> str:
    from prfaas_cli.profile_files import read_bytes

    try:
        return read_bytes(path, most_bytes=most_bytes).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
