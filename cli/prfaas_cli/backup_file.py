"""A backup on disk: etcd's snapshot, and beside it a file that says what it is of."""

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prfaas.errors import StateError

SUFFIX = ".json"
_MODE = 0o600
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot is of; `revision` is etcd's, and grows with every write."""

    deployment: str
    taken_at: str
    revision: int
    keys: int
    sha256: str


def backup_path(target: Path, deployment: str, *, now_s: float) -> Path:
    """Return the file of a new backup: the target, or one of the deployment's name in a folder.

    Raises:
        StateError: it, or what says what it is, exists already; or there is no such folder.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    path = target / f"{deployment}-{stamp}.db" if target.is_dir() else target
    if not path.parent.is_dir():
        raise StateError(f"{path.parent}: no such folder")
    for found in (path, manifest_path(path)):
        if os.path.lexists(found):
            raise StateError(f"{found} exists; a backup overwrites nothing: give another name")
    return path


def manifest_path(path: Path) -> Path:
    """Return the file that says what a backup is of."""
    return path.with_name(path.name + SUFFIX)


def manifest_of(snapshot: Path, status: dict[str, Any], *, deployment: str) -> Manifest:
    """Return what a snapshot is; `status` is what `snapshot status -w json` says of it.

    Raises:
        StateError: etcd's tool says nothing of use, so that it is no snapshot.
    """
    taken_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        revision, keys = int(status["revision"]), int(status["totalKey"])
    except (KeyError, TypeError, ValueError):
        raise StateError(f"{snapshot}: not a snapshot of etcd: {status!r:.200}") from None
    return Manifest(deployment, taken_at, revision, keys, digest_of(snapshot))


def keep(snapshot: Path, path: Path, manifest: Manifest) -> None:
    """Put a snapshot of the same disk in its place as a whole, for its owner only.

    Raises:
        StateError: something is there by now, or it cannot be written.
    """
    beside = snapshot.with_name("manifest.json")
    beside.write_text(json.dumps(asdict(manifest), indent=1) + "\n")
    try:
        for made, place in ((beside, manifest_path(path)), (snapshot, path)):
            made.chmod(_MODE)
            with made.open("rb") as file:
                os.fsync(file.fileno())
            # A link, unlike a rename, never replaces what is there.
            os.link(made, place)
    except FileExistsError:
        raise StateError(f"{path} exists by now; a backup overwrites nothing") from None
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from None


def read_manifest(path: Path) -> Manifest | None:
    """Return what a backup says it is; None where nothing says so.

    Raises:
        StateError: there is no such backup, or it is not what was saved.
    """
    if not path.is_file():
        raise StateError(f"{path}: no such file")
    if not manifest_path(path).is_file():
        return None
    try:
        manifest = Manifest(**json.loads(manifest_path(path).read_text()))
    except (ValueError, TypeError):
        raise StateError(f"{manifest_path(path)}: damaged") from None
    if manifest.sha256 != digest_of(path):
        raise StateError(f"{path}: not what was saved: its digest is another; take another backup")
    return manifest


def restore_problem(manifest: Manifest | None, deployment: str, revision: int | None) -> str | None:
    """Return why a restore should not go on unasked; `revision` is etcd's now, None without one.

    >>> restore_problem(Manifest("east", "2026-12-01T00:00:00Z", 40, 9, ""), "west", 41)
    'the backup is of the deployment east, not of west'
    """
    if manifest is None:
        return "nothing beside the backup says of which deployment it is"
    if manifest.deployment != deployment:
        return f"the backup is of the deployment {manifest.deployment}, not of {deployment}"
    if revision is not None and revision > manifest.revision:
        return (
            f"etcd is at revision {revision}, and the backup of {manifest.taken_at} at"
            f" {manifest.revision}: what was written since would be lost"
        )
    return None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
