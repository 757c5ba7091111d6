"""The case of a gateway's site: profiles, links and what must hold."""

from pathlib import Path
from typing import TYPE_CHECKING

from prfaas.errors import ConfigError

if TYPE_CHECKING:
    from prfaas.planning import Case

_MAX_BYTES = 64 << 20


def read_case(path: str, *, region: str) -> "Case":
    """Read `gateway.case`: its clusters are named as the regions are.

    Raises:
        ConfigError: naming the file and what is wrong.
    """
    from prfaas.planning import case_files, parse_case

    text = _text(Path(path))
    named = case_files(text, source=path)
    if named.trace:
        raise ConfigError(f"{path}: requests.trace: a gateway sees its requests: give lengths")
    profiles = {file: _text(Path(path).parent / file) for file in named.profiles}
    case = parse_case(text, source=path, profiles=profiles)
    if case.site.pd.name != region:
        raise ConfigError(
            f"{path}: pd.name = {case.site.pd.name!r}: allowed: {region!r}, the gateway's region;"
            " and the other clusters are named as their regions"
        )
    return case


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ConfigError(f"{path}: more than {_MAX_BYTES} bytes")
        return raw.decode()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
