import importlib.metadata
import socket
from pathlib import Path

import pytest

from prfaas.errors import PreflightError
from prfaas_agent import checks
from prfaas_agent.first_of import first_of
from prfaas_agent.interface import interface_of
from prfaas_coord.backoff import Backoff


def test_a_wrong_or_missing_sglang_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.5.22")
    assert "0.5.22" in str(checks.sglang_problem())

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert "not installed" in str(checks.sglang_problem())
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.5.23")
    assert checks.sglang_problem() is None


def test_a_model_directory_needs_its_files(tmp_path: Path) -> None:
    assert "does not exist" in str(checks.model_problem(str(tmp_path / "no")))
    assert "no config.json and no tokenizer.json" in str(checks.model_problem(str(tmp_path)))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert checks.model_problem(str(tmp_path)) is None


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in str(checks.port_problem("127.0.0.1", port))
    assert checks.port_problem("127.0.0.1", port) is None


def test_a_socket_path_has_a_limit() -> None:
    assert checks.socket_path_problem(Path("/x" * 53)) is None
    assert checks.socket_path_problem(Path("/x" * 54)) is not None


def test_all_problems_are_refused_in_one_line() -> None:
    checks.refuse([], what="n")
    with pytest.raises(PreflightError, match="n: one; two"):
        checks.refuse(["one", "two"], what="n")


def test_backoff_is_bounded_forever_and_starts_afresh_after_a_good_run() -> None:
    backoff = Backoff(first_s=0.5, limit_s=4.0, reset_after_s=30.0)
    waits = [backoff.next_s(ran_s=1.0) for _ in range(5000)]
    assert waits[:5] == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert max(waits) == 4.0
    assert backoff.next_s(ran_s=30.0) == 0.5


async def test_first_of_cancels_the_others() -> None:
    import asyncio

    never = asyncio.Event()
    assert await first_of(never.wait(), asyncio.sleep(0), never.wait()) == 1
    assert await first_of(never.wait(), timeout_s=0.01) is None
    with pytest.raises(ExceptionGroup):
        await first_of(never.wait(), _fail())


async def _fail() -> None:
    raise ValueError("broken")


def test_a_host_that_does_not_resolve_is_said() -> None:
    problem = checks.port_problem("no-such-host.invalid", 1)
    assert problem is not None
    assert problem.startswith("host no-such-host.invalid does not resolve")


def test_a_host_name_has_an_interface() -> None:
    assert interface_of("localhost") == "lo"
