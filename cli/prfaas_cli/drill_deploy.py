"""The deployment of twins that drills run on: made for them, and removed whatever happens."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from prfaas.errors import ConfigError, PreflightError, PrfaasError, StateError
from prfaas_agent.process import send_signal
from prfaas_cli.drill_site import DeploymentSite
from prfaas_cli.observation import Observed
from prfaas_cli.output import Output
from prfaas_cli.place import DEFAULT_STATE_DIR, Place
from prfaas_loadtest.drills import SiteSpec

_READY_S = 30.0
_MOUNT_TRIES = 20
_KINDS: dict[int, type[PrfaasError]] = {2: ConfigError, 3: PreflightError}


def existing_site(name: str, state_dir: Path | None) -> DeploymentSite:
    """Return a deployment that is there.

    Raises:
        StateError: it is not, or its engines are no twins.
    """
    observed = Observed.of(Place.of(state_dir or DEFAULT_STATE_DIR, name))
    if not observed.options.is_twin:
        raise StateError(f"{name} has no twins: drills need deploy --engine twin")
    return DeploymentSite(observed)


@contextmanager
def made_site(spec: SiteSpec, output: Output) -> Iterator[DeploymentSite]:
    """Deploy twins under a name and in a directory of their own; destroy them in the end.

    Raises:
        StateError: they cannot be deployed, or something of them cannot be removed.
    """
    with _directory(spec.disk_bytes) as state_dir:
        place = Place.of(state_dir, f"drill-{os.getpid()}")
        try:
            _deploy(place, spec, output)
            observed = Observed.of(place)
            _set_deadline(observed, spec.request_timeout_s)
            yield DeploymentSite(observed)
        finally:
            _destroy(place, output)


@contextmanager
def _directory(disk_bytes: int) -> Iterator[Path]:
    """Give a new directory, on a file system of its own if a size is asked for."""
    directory = Path(tempfile.mkdtemp(prefix="prfaas-drill-"))
    try:
        if disk_bytes:
            size = f"size={disk_bytes}"
            _call(["mount", "-t", "tmpfs", "-o", size, "prfaas-drill", str(directory)])
        yield directory
    finally:
        if disk_bytes:
            _unmount(directory)
        shutil.rmtree(directory, ignore_errors=True)


def _unmount(directory: Path) -> None:
    """Unmount; a process that has just ended may hold it for a moment."""
    for _ in range(_MOUNT_TRIES):
        done = subprocess.run(["umount", str(directory)], capture_output=True, check=False)
        if done.returncode == 0 or not os.path.ismount(directory):
            return
        time.sleep(0.25)
    raise StateError(f"{directory} cannot be unmounted; run umount {directory}")


def _deploy(place: Place, spec: SiteSpec, output: Output) -> None:
    output.note(f"deploying {spec.instances} twins as {place.name} in {place.root}")
    options = ["--regions", "a,b", "--engine", "twin", "--port", str(_free_port())]
    options += ["--instances", spec.instances, "--threshold", str(spec.threshold_tokens)]
    options += ["--scale", f"{spec.scale:g}", "--dilation", f"{spec.dilation:g}"]
    options += ["--security", spec.security]
    options += ["--role-switch"] if spec.role_switch else []
    _prfaasctl("deploy", place, options)


def _destroy(place: Place, output: Output) -> None:
    if place.directory.exists():
        output.note(f"destroying {place.name}")
        _prfaasctl("destroy", place, [])


def _prfaasctl(command: str, place: Place, options: Sequence[str]) -> None:
    """Run a command of ours; in a session of its own, so that Ctrl-C is not for it."""
    argv = [sys.executable, "-m", "prfaas_cli", command, *options]
    _call([*argv, "--name", place.name, "--state-dir", str(place.root)])


def _call(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, start_new_session=True, check=False
        )
    except OSError as error:
        raise StateError(f"{argv[0]}: {error.strerror}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no word"]
        # What a machine lacks, and what an option must not be, is that of the drill, too.
        kind = _KINDS.get(done.returncode, StateError)
        raise kind(f"{' '.join(argv[2:4])}: {lines[-1].removeprefix('prfaasctl: error: ')}")


def _set_deadline(observed: Observed, request_timeout_s: float) -> None:
    """Give the gateway the drill's deadline: its file is changed, and it starts again."""
    path = observed.place.config_file(observed.gateway_node)
    lines = [
        f"request_timeout_s = {request_timeout_s:g}" if "request_timeout_s" in line else line
        for line in path.read_text().splitlines()
    ]
    text = "\n".join(lines) + "\n"
    if "request_timeout_s" not in text:
        text = text.replace("[gateway]\n", f"[gateway]\nrequest_timeout_s = {request_timeout_s}\n")
    path.write_text(text)
    site = DeploymentSite(observed)
    old = site.process(observed.gateway_node)
    if old is not None:
        send_signal(old, 15)
    deadline_s = time.monotonic() + _READY_S
    while site.process(observed.gateway_node) in (None, old) or site.problems():
        if time.monotonic() > deadline_s:
            raise StateError(f"the gateway is not ready: {'; '.join(site.problems())}")
        time.sleep(0.1)


def _free_port() -> int:
    """Return a port of loopback that nobody has right now."""
    with suppress(OSError), socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
    raise StateError("no port of 127.0.0.1 is free")
