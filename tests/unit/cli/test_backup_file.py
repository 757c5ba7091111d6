"""What a backup is on disk, and what is refused."""

import stat
from pathlib import Path

import pytest

from prfaas.errors import StateError
from prfaas_cli.backup_file import (
    Manifest,
    backup_path,
    keep,
    manifest_of,
    manifest_path,
    read_manifest,
    restore_problem,
)
from prfaas_cli.main import run
from prfaas_cli.place import Place

STATUS = {"hash": 1, "revision": 40, "totalKey": 9, "totalSize": 8}


def saved(folder: Path, *, deployment: str = "east") -> Path:
    scratch = folder / "scratch"
    scratch.mkdir()
    snapshot = scratch / "snapshot.db"
    snapshot.write_bytes(b"state")
    path = backup_path(folder / "etcd.db", deployment, now_s=0.0)
    keep(snapshot, path, manifest_of(snapshot, STATUS, deployment=deployment))
    return path


def test_a_folder_gets_a_file_of_the_deployments_name(tmp_path: Path) -> None:
    path = backup_path(tmp_path, "east", now_s=0.0)
    assert path == tmp_path / "east-19700101T000000Z.db"


def test_a_backup_is_for_its_owner_only_and_says_what_it_is(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for file in (path, manifest_path(path)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    manifest = read_manifest(path)
    assert manifest is not None
    assert (manifest.deployment, manifest.revision, manifest.keys) == ("east", 40, 9)


def test_a_backup_overwrites_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(StateError, match=r"etcd\.db exists; a backup overwrites nothing"):
        backup_path(path, "east", now_s=0.0)
    another = tmp_path / "another.db"
    another.write_bytes(b"other state")
    with pytest.raises(StateError, match="exists by now"):
        keep(another, path, Manifest("east", "", 41, 9, ""))
    assert path.read_bytes() == b"state"


def test_a_link_to_nowhere_is_something_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "etcd.db").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StateError, match="exists"):
        backup_path(tmp_path / "etcd.db", "east", now_s=0.0)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no such folder"):
        backup_path(tmp_path / "none/etcd.db", "east", now_s=0.0)


def test_what_is_no_snapshot_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(StateError, match="not a snapshot"):
        manifest_of(tmp_path / "empty.db", {}, deployment="east")


def test_a_backup_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_bytes(b"stat3")
    with pytest.raises(StateError, match="not what was saved"):
        read_manifest(path)
    manifest_path(path).write_text("{}")
    with pytest.raises(StateError, match="damaged"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("revision", "deployment", "problem"),
    [
        (None, "east", None),
        (40, "east", None),
        (41, "east", "what was written since would be lost"),
        (1, "west", "of the deployment east, not of west"),
    ],
)
def test_a_restore_asks_before_it_loses_something(
    tmp_path: Path, revision: int | None, deployment: str, problem: str | None
) -> None:
    found = restore_problem(read_manifest(saved(tmp_path)), deployment, revision)
    assert found == problem if problem is None else problem in str(found)


def test_a_file_that_nothing_is_said_of_needs_a_yes(tmp_path: Path) -> None:
    path = saved(tmp_path)
    manifest_path(path).unlink()
    assert read_manifest(path) is None
    assert "nothing beside the backup" in str(restore_problem(None, "east", None))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["upgrade", "--drain", "-1"], 2, "--drain -1: allowed is 0 to 3600 seconds"),
        (["upgrade", "--timeout", "0"], 2, "--timeout 0: allowed is up to 86400 seconds"),
        (["upgrade"], 1, "nothing is deployed as east"),
        (["backup", "etcd.db"], 1, "nothing is deployed as east"),
        (["restore", "etcd.db"], 1, "nothing is deployed as east"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    assert run([*words, "--name", "east", "--state-dir", str(tmp_path)]) == code
    assert said in capsys.readouterr().err


def test_an_emulated_deployment_is_not_upgraded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place.of(tmp_path, "east")
    place.directory.mkdir()
    place.write_deployment({"options": {}, "processes": []})
    assert run(["upgrade", "--name", "east", "--state-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "east is emulated" in said
    assert "prfaasctl destroy and deploy" in said
