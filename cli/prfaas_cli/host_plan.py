"""Full hosts: which there are, and the inventory that ansible reads. No effect on the machine."""

import hashlib
import re
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prfaas.errors import ConfigError
from prfaas_cli.options import find_model
from prfaas_cli.place import Place

if TYPE_CHECKING:
    from prfaas_netem import Topology

ROLES = ("prefill", "decode", "gateway", "etcd")
"""Groups of the inventory; a host's name begins with its role."""
_ROLE = re.compile(rf"({'|'.join(ROLES)})(-\d+)?")
_MEMBERS = 3
_MODEL = "qwen3-next-tiny"
_EMPTY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - systemd-nspawn gives hosts their own


@dataclass(frozen=True, slots=True)
class FullHost:
    """An emulated machine: a network namespace with a root file system and a systemd of its own.

    `short` is its name in the topology; `name` its host name, unique in the deployment.
    """

    name: str
    short: str
    region: str
    namespace: str
    address: str
    directory: Path
    cgroup: str

    @property
    def root(self) -> Path:
        """Where its root file system is mounted."""
        return self.directory / "root"

    @property
    def process(self) -> str:
        """Name of its process, and so of its log."""
        return f"host-{self.name}"


def hosts_directory(place: Place) -> Path:
    """Return where the files of all hosts are."""
    return place.directory / "hosts"


def key_file(place: Place) -> Path:
    """Return the private key that opens all hosts."""
    return place.directory / "ssh" / "id_ed25519"


def known_hosts_file(place: Place) -> Path:
    """Return the file with the public keys of all hosts."""
    return place.directory / "ssh" / "known_hosts"


def lent_folders() -> list[Path]:
    """Return what hosts use of this machine in folders that are else empty in a host."""
    used = (Path(sys.prefix), Path(find_model(_MODEL)).parent)
    return [path for path in used if any(path.is_relative_to(root) for root in _EMPTY)]


def plan_hosts(place: Place, topology: "Topology", text: str) -> tuple[FullHost, ...]:
    """Return the hosts of a topology, in the order of its namespaces; `text` is its file."""
    written = tomllib.loads(text).get("regions", {}) if text else {}
    found = []
    for region in topology.regions:
        names = written.get(region, {}).get("hosts", [region])
        for short, port in zip(names, topology.ports(region), strict=True):
            name = region if short == region else f"{region}-{short}"
            found.append(
                FullHost(
                    name=name,
                    short=short,
                    region=region,
                    namespace=port.namespace,
                    address=port.address,
                    directory=hosts_directory(place) / name,
                    cgroup=f"prfaas-{place.name}-{name}",
                )
            )
    return tuple(found)


def inventory(place: Place, hosts: Sequence[FullHost]) -> dict[str, Any]:
    """Return an ansible inventory, of the form that Terraform's output has.

    Where no host is named `etcd`, three hosts (one, where there are fewer) are members besides
    their own role, those of the last region first.

    Raises:
        ConfigError: a host's name tells no role.
    """
    groups: dict[str, dict[str, Any]] = {role: {} for role in ROLES}
    for host in hosts:
        match = _ROLE.fullmatch(host.short)
        if match is None:
            allowed = ", ".join(ROLES)
            raise ConfigError(
                f"host {host.short!r} of region {host.region}: its name must be its role, for an"
                f" inventory; allowed: {allowed}, with a number behind, as in prefill-1"
            )
        groups[match[1]][host.name] = _variables(place, host, match[1])
    if not groups["etcd"]:
        count = _MEMBERS if len(hosts) >= _MEMBERS else 1
        members = sorted(hosts, key=lambda host: host.region, reverse=True)[:count]
        groups["etcd"] = {host.name: {} for host in members}
    children = {role: {"hosts": members} for role, members in groups.items() if members}
    return {"all": {"children": children, "vars": _shared_variables(place)}}


def _variables(place: Place, host: FullHost, role: str) -> dict[str, Any]:
    dial = f"{sys.executable} -m prfaas_netem.dial {host.namespace} %h %p"
    options = [
        "-F none -o IdentitiesOnly=yes",
        f"-o UserKnownHostsFile={known_hosts_file(place)} -o StrictHostKeyChecking=yes",
        f"-o ProxyUseFdpass=yes -o ProxyCommand='{dial}'",
    ]
    return {
        "ansible_host": host.address,
        "ansible_ssh_common_args": " ".join(options),
        "prfaas_address": host.address,
        "prfaas_region": host.region,
        "prfaas_role": role,
    }


def _shared_variables(place: Place) -> dict[str, Any]:
    return {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key_file(place)),
        "ansible_control_path": f"%(directory)s/{_digest(place)}-%%h-%%p-%%r",
        "ansible_python_interpreter": "/usr/bin/python3",
        "prfaas_deployment": place.name,
        # A host has the file system of this machine: its Python, packages and models.
        "prfaas_emulated_host": True,
        "prfaas_python": sys.executable,
        "prfaas_with_dependencies": False,
        "prfaas_site_packages": sysconfig.get_path("purelib"),
        "prfaas_protect_home": "read-only",
        "prfaas_private_tmp": "no" if lent_folders() else "yes",
        "prfaas_device": "cpu",
        "prfaas_model_path": find_model(_MODEL),
    }


def _digest(place: Place) -> str:
    """Return what tells these hosts from others with the same addresses: a connection that ansible
    keeps open for one set must not be taken for one to the other."""
    return hashlib.sha256(str(place.directory).encode()).hexdigest()[:12]
