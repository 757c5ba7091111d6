"""What drills need: the tiny models, whose tokenizer twins speak with, and a name of their own."""

import os
from pathlib import Path

import pytest

from prfaas_cpu.models import default_models_dir


@pytest.fixture(scope="session")
def models_dir() -> Path:
    return default_models_dir()


@pytest.fixture(scope="session")
def deployment_name() -> str:
    return f"c{os.getpid()}"
