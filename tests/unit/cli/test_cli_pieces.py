from importlib.metadata import version
from pathlib import Path

import pytest

from prfaas.errors import ConfigError, StateError
from prfaas_cli.deploy_lines import _longest
from prfaas_cli.main import run
from prfaas_cli.output import Output, table
from prfaas_cli.place import Place
from prfaas_cli.supervision import bound_log


def test_json_goes_to_stdout_and_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=True)
    output.note("working")
    output.result({"a": 1}, lambda: ["never"])
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ('{"a": 1}\n', "working\n")
    Output(as_json=False).result({}, lambda: ["for people"])
    assert capsys.readouterr().out == "for people\n"


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table([["A", "B"], ["long", "x"]]) == ["A     B", "long  x"]


def test_a_log_is_bounded_while_a_process_holds_it_open(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    with path.open("ab", buffering=0) as log:
        log.write(b"a" * 100)
        bound_log(path, limit_bytes=100)
        assert path.stat().st_size == 100
        log.write(b"b")
        bound_log(path, limit_bytes=100)
        log.write(b"new")
    assert path.read_bytes() == b"new"
    assert (tmp_path / "x.log.1").read_bytes() == b"a" * 100 + b"b"
    bound_log(tmp_path / "missing.log", limit_bytes=1)


@pytest.mark.parametrize("name", ["", "UPPER", "a/b", "..", "-x"])
def test_a_deployment_name_that_could_be_a_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        Place.of(tmp_path, name)


def test_one_command_at_a_time_changes_a_deployment(tmp_path: Path) -> None:
    place = Place(tmp_path, "dev")
    with place.locked(), pytest.raises(StateError, match="another prfaasctl"), place.locked():
        raise AssertionError("locked twice")
    with place.locked(), Place(tmp_path, "other").locked():
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dev", "other"]


def test_where_the_time_went_is_the_step_not_the_clock() -> None:
    assert (
        _longest({"etcd": 1.0, "load": 16.0, "serve": 19.0})
        == "load 15.0 s, serve 3.0 s, etcd 1.0 s"
    )


def test_a_lock_leaves_no_empty_directory(tmp_path: Path) -> None:
    place = Place(tmp_path / "root", "dev")
    with pytest.raises(KeyboardInterrupt), place.locked():
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with place.locked():
        (place.directory / "x").touch()
    assert place.directory.exists()


def test_an_interrupt_is_said_wherever_it_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for what in ("prfaas_cli.chat.Place.of", "prfaas_cli.app.run_command"):
        monkeypatch.setattr(what, interrupt)
        assert run(["chat", "hi", "--json"]) == 130
        captured = capsys.readouterr()
        assert captured.err == "prfaasctl: error: interrupted\n"
        assert '"error": "interrupted"' in captured.out


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"prfaasctl {version('prfaas')}\n"
