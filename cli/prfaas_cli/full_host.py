"""Make the root file system of a full host, and run it.

The root is an overlay of this machine's: what the machine has installed, the host has, and what the
host writes is its own. Services of the machine do not start in it, only sshd does.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from prfaas.errors import StateError
from prfaas_cli.host_plan import FullHost, lent_folders
from prfaas_cli.mounts import is_mounted
from prfaas_cli.ssh_keys import public_line, write_key

#: Folders of this machine that a host does not see.
_HIDDEN = (
    *("etc/systemd/system", "etc/prfaas", "etc/etcd", "root/.ssh"),
    *("var/lib/prfaas", "var/lib/etcd", "var/log/journal"),
)
_MASKED = (
    *("getty.target", "systemd-logind.service", "systemd-pstore.service"),
    *("systemd-update-utmp.service", "systemd-update-utmp-runlevel.service"),
)
_HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
_SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
MaxStartups 100:30:200
Subsystem sftp internal-sftp
"""
_MOUNT_TIMEOUT_S = 20.0


def prepare(host: FullHost, hosts: Sequence[FullHost], *, opened_by: str) -> bool:
    """Make a host's root and mount it; return whether it was made now.

    `opened_by` is the line of `authorized_keys`.

    Raises:
        StateError: it cannot be made or mounted.
    """
    try:
        made = not (host.directory / "ready").exists()
        if made:
            _write_root(host, hosts, opened_by)
            (host.directory / "ready").touch()
        if not is_mounted(host.root):
            _mount(host)
    except OSError as error:
        raise StateError(f"host {host.name}: {error}") from None
    return made


def host_key_line(host: FullHost) -> str:
    """Return the host's line of `known_hosts`."""
    return f"{host.address} {public_line(_upper(host) / _HOST_KEY)}"


def nspawn_argv(host: FullHost) -> list[str]:
    """Return the command that boots the host; it ends when the host does."""
    return [
        # The host may set what the kernel keeps per network namespace.
        *("env", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network"),
        *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"),
        *("--console=passive", "--resolv-conf=off", "--timezone=off", "--link-journal=no"),
        f"--machine={host.name}",
        f"--directory={host.root}",
        f"--network-namespace-path=/run/netns/{host.namespace}",
        "--capability=CAP_NET_ADMIN",
        *(f"--bind-ro={folder}" for folder in lent_folders()),
    ]


def _upper(host: FullHost) -> Path:
    return host.directory / "changes"


def _write_root(host: FullHost, hosts: Sequence[FullHost], opened_by: str) -> None:
    """Write what differs from this machine, into the upper layer, before it is mounted."""
    upper = _upper(host)
    for name in ("changes", "work", "root"):
        (host.directory / name).mkdir(parents=True, exist_ok=True)
    for name in _HIDDEN:
        folder = upper / name
        folder.mkdir(parents=True, exist_ok=True)
        os.setxattr(folder, "trusted.overlay.opaque", b"y")
    # The interpreter of this machine may be in root's home; services run as others.
    (upper / "root").chmod(0o711)
    (upper / "root/.ssh").chmod(0o700)
    names = "".join(f"{other.address} {other.name}\n" for other in hosts)
    _write(upper / "etc/hostname", f"{host.name}\n")
    _write(upper / "etc/hosts", f"127.0.0.1 localhost\n{names}")
    _write(upper / "etc/machine-id", "")
    _write(upper / "etc/ssh/sshd_config", _SSHD)
    _write(upper / "root/.ssh/authorized_keys", opened_by + "\n", mode=0o600)
    write_key(upper / _HOST_KEY, comment=host.name)
    _choose_services(upper / "etc/systemd/system")


def _choose_services(folder: Path) -> None:
    units = Path("/lib/systemd/system")
    links = {"default.target": units / "multi-user.target"}
    links |= {"multi-user.target.wants/ssh.service": units / "ssh.service"}
    links |= {name: Path(os.devnull) for name in _MASKED}
    for name, target in links.items():
        link = folder / name
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _mount(host: FullHost) -> None:
    layers = f"lowerdir=/,upperdir={_upper(host)},workdir={host.directory / 'work'}"
    command = ["mount", "-t", "overlay", "overlay", "-o", layers, str(host.root)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_MOUNT_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise StateError(f"host {host.name}: {done.stderr.strip()}")
