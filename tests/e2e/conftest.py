import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sglang_engines import ForkServerProcess

from prfaas_cpu.models import default_models_dir


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServerProcess]:
    server = ForkServerProcess(tmp_path_factory.mktemp("engines"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def models_dir() -> Path:
    return default_models_dir()


@pytest.fixture(scope="session")
def deployment_name() -> str:
    return f"e{os.getpid()}"
