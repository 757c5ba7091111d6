import threading
from collections.abc import Iterator
from typing import Any

import pytest

from prfaas.errors import PrfaasError
from prfaas_plugin import directory as directory_module
from prfaas_plugin.directory import PrefillDirectory, take_refusal


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "PATIENCE_S", 0.01)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def until_ready(directory: PrefillDirectory, address: str) -> None:
    for _ in range(1000):
        if directory.ready(address):
            return
    raise AssertionError("never ready")


def test_a_slow_prefill_holds_nobody_and_is_asked_once(
    gate: threading.Event,
) -> None:
    calls = []

    def load(address: str) -> bool:
        calls.append(address)
        return gate.wait(10)

    directory = PrefillDirectory(load)
    assert not directory.ready("a:1")
    assert not directory.ready("a:1")
    gate.set()
    until_ready(directory, "a:1")
    assert calls == ["a:1"]
    directory.close()


def test_an_unreachable_prefill_is_asked_again() -> None:
    answers = iter([False, True])
    directory = PrefillDirectory(lambda _address: next(answers))
    until_ready(directory, "a:1")
    assert next(answers, None) is None
    directory.close()


def ensured(directory: PrefillDirectory, address: str, table: dict[str, Any]) -> None:
    for _ in range(1000):
        if directory.ensure(address, table):
            return
    raise AssertionError("never ready")


def test_a_refusal_is_told_once_and_then_asked_afresh() -> None:
    """SGLang waits for ever for a prefill that its table has not, so a refused one stands in it."""
    calls = []

    def load(address: str) -> bool:
        calls.append(address)
        raise PrfaasError("prefill runs at TP 2, decode at TP 1")

    table: dict[str, Any] = {}
    directory = PrefillDirectory(load)
    for times in (1, 2):
        ensured(directory, "a:1", table)
        assert directory.ensure("a:1", table)
        # What SGLang reads of it before a receiver says no.
        assert (table["a:1"].dp_size, table["a:1"].follow_bootstrap_room) == (1, False)
        assert take_refusal("a:1", table) == "prefill runs at TP 2, decode at TP 1"
        assert take_refusal("a:1", table) is None
        assert table == {}
        assert calls == ["a:1"] * times
    directory.close()


def test_a_prefill_that_sglang_knows_is_not_asked() -> None:
    def load(_address: str) -> bool:
        raise AssertionError("asked")

    table: dict[str, Any] = {"a:1": object()}
    directory = PrefillDirectory(load)
    assert directory.ensure("a:1", table)
    assert take_refusal("a:1", table) is None
    assert "a:1" in table
    directory.close()
