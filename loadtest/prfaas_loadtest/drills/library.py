"""The drills that come with the product: one TOML file each."""

from importlib.resources import files
from pathlib import Path

from prfaas.errors import ConfigError
from prfaas_loadtest.drills.spec import Drill, parse_drill

_FOLDER = "files"
_SUFFIX = ".toml"
_LARGEST_BYTES = 1 << 20


def library_names() -> list[str]:
    """Return the names of all drills of the library, sorted."""
    folder = files("prfaas_loadtest.drills") / _FOLDER
    names = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def read_drill(name_or_file: str) -> Drill:
    """Return a drill of the library by its name, or what a file holds.

    Raises:
        ConfigError: it is neither, or no drill.
    """
    if name_or_file in library_names():
        entry = files("prfaas_loadtest.drills") / _FOLDER / f"{name_or_file}{_SUFFIX}"
        return parse_drill(entry.read_text(), source=entry.name)
    path = Path(name_or_file)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        text = content.decode()
    except (OSError, ValueError):
        raise ConfigError(
            f"drill {name_or_file!r}: neither a readable file nor a name that drill list shows"
        ) from None
    if len(content) > _LARGEST_BYTES:
        raise ConfigError(f"{path}: larger than {_LARGEST_BYTES >> 20} MiB, too large for a drill")
    return parse_drill(text, source=str(path))
