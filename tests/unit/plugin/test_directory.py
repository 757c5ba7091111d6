import threading
from collections.abc import Iterator

import pytest

from prfaas.errors import PrfaasError
from prfaas_plugin import directory as directory_module
from prfaas_plugin.directory import PrefillDirectory


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


def test_a_refusal_is_told_once_and_then_asked_afresh() -> None:
    def load(_address: str) -> bool:
        raise PrfaasError("prefill runs at TP 2, decode at TP 1")

    directory = PrefillDirectory(load)
    until_ready(directory, "a:1")
    assert directory.take_refusal("a:1") == "prefill runs at TP 2, decode at TP 1"
    assert directory.take_refusal("a:1") is None
    directory.close()
