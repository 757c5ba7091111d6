"""The model store: complete, repaired when damaged, the same bytes every time."""

from pathlib import Path

import pytest

from prfaas_cpu.models import TINY_MODELS, default_models_dir, recipes, store


def write_small(name: str, directory: Path) -> None:
    directory.mkdir()
    (directory / "config.json").write_text(f'{{"name": "{name}"}}')
    (directory / "model.safetensors").write_bytes(b"weights of " + name.encode())


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recipes, "write_model", write_small)
    assert list(store.make_models(tmp_path, ["one", "two"])) == [("one", True), ("two", True)]
    return tmp_path


def test_complete_models_are_left_alone(out: Path) -> None:
    before = (out / "one" / store.CHECKSUMS).stat().st_mtime_ns
    assert list(store.make_models(out, ["one", "two"])) == [("one", False), ("two", False)]
    assert (out / "one" / store.CHECKSUMS).stat().st_mtime_ns == before


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", store.CHECKSUMS])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_model_is_made_again(out: Path, file: str, damage: str) -> None:
    path = out / "one" / file
    right = path.read_bytes()
    path.unlink() if damage == "gone" else path.write_bytes(right[:-3])
    assert list(store.make_models(out, ["one", "two"])) == [("one", True), ("two", False)]
    assert path.read_bytes() == right


def test_a_foreign_file_counts_as_damage(out: Path) -> None:
    (out / "one" / "extra.bin").write_bytes(b"")
    assert not store.is_complete(out / "one")


def test_what_an_interrupted_run_left_is_cleared(out: Path) -> None:
    (out / ".one.making").mkdir()
    (out / ".one.making" / "half").write_text("half")
    assert list(store.make_models(out, ["one"])) == [("one", False)]
    assert sorted(path.name for path in out.iterdir()) == [".lock", "one", "two"]


def test_a_changed_recipe_makes_models_anew(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_RECIPE_PACKAGES", ("numpy",))
    assert list(store.make_models(out, ["one"])) == [("one", True)]


def test_the_models_of_this_environment_are_complete() -> None:
    for name in TINY_MODELS:
        assert store.is_complete(default_models_dir() / name), f"{name}: run make setup"
