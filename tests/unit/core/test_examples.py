"""Every example in a docstring holds."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("core", "plugin", "gateway", "netem", "loadtest", "cli")


def modules_with_examples() -> list[str]:
    return [
        ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if ">>> " in path.read_text()
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_hold(name: str) -> None:
    results = doctest.testmod(import_module(name.removesuffix(".__init__")))
    assert results.attempted > 0
    assert results.failed == 0
