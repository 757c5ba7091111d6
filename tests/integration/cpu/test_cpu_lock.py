"""The environment is the one that requirements.lock describes."""

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: pip and its like come with the environment, the project itself is not a requirement.
UNLOCKED = {"pip", "setuptools", "wheel", "prfaas"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = (line.partition("==") for line in lines if not line.startswith("#"))
    return {canonical(name): version for name, _, version in pins}


def installed() -> dict[str, str]:
    found = distributions(path=[path for path in sys.path if "site-packages" in path])
    return {canonical(d.metadata["Name"]): d.version for d in found}


def test_every_line_of_the_lock_is_a_pin() -> None:
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in locked())
    assert all(re.fullmatch(r"[\w.+]+", version) for version in locked().values())


def test_the_lock_and_the_environment_agree() -> None:
    ours = {name: version for name, version in installed().items() if name not in UNLOCKED}
    assert ours == locked()


def test_the_lock_can_draw_in_no_cuda() -> None:
    assert locked()["torch"].endswith("+cpu")
    assert not [name for name in locked() if re.match(r"nvidia-(?!ml-py)|cuda-", name)]
