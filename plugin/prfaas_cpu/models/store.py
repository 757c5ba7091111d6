"""Models on disk: complete with checksums, or not there at all."""

import fcntl
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

CHECKSUMS = "SHA256SUMS"
_RECIPE_FILES = ("corpus.txt", "recipes.py", "tokenizer.py", "weights.py")
_RECIPE_PACKAGES = ("numpy", "tokenizers", "torch", "transformers")


def make_models(out: Path, names: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Make the models that are missing or damaged below `out`; yield (name, whether it was made).

    A model appears by one rename, so a reader never sees half of one. Makers wait for each other.
    """
    out.mkdir(parents=True, exist_ok=True)
    with _locked(out / ".lock"):
        for leftover in out.glob(".*.making"):
            shutil.rmtree(leftover)
        for name in names:
            if is_complete(out / name):
                yield name, False
            else:
                _make(out, name)
                yield name, True


def is_complete(model: Path) -> bool:
    """Tell whether a model has every file with the right content, made by today's recipe."""
    try:
        recorded = (model / CHECKSUMS).read_text()
    except OSError:
        return False
    return recorded == _checksums(model)


def _make(out: Path, name: str) -> None:
    from prfaas_cpu.models import recipes

    making = out / f".{name}.making"
    recipes.write_model(name, making)
    (making / CHECKSUMS).write_text(_checksums(making))
    if (out / name).exists():
        (out / name).rename(out / f".{name}.damaged.making")
    making.rename(out / name)
    shutil.rmtree(out / f".{name}.damaged.making", ignore_errors=True)


def _checksums(model: Path) -> str:
    """Return the text of the checksum file, which `sha256sum -c` understands."""
    files = (file for file in sorted(model.iterdir()) if file.name != CHECKSUMS)
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    return f"# recipe {_recipe_digest()}\n" + "".join(sums)


def _recipe_digest() -> str:
    """Digest what decides a model's bytes: our recipe and the packages that write it."""
    digest = hashlib.sha256()
    for name in _RECIPE_FILES:
        digest.update((Path(__file__).parent / name).read_bytes())
    for package in _RECIPE_PACKAGES:
        digest.update(f"{package}=={version(package)}\n".encode())
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
