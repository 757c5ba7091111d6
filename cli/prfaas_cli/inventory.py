"""Hosts of an inventory as `deploy` needs them: who does what in which region. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prfaas.names import is_name

ENGINE_GROUPS = ("prefill", "decode")
GROUPS = (*ENGINE_GROUPS, "gateway", "etcd")
_GATEWAY_PORT = 8080
_ADDRESS = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class InventoryHost:
    """One machine: its groups of ours, its region and address; empty where it has none.

    `gateway_port` is 0 where what the inventory says is no port.
    """

    name: str
    groups: tuple[str, ...]
    region: str
    address: str
    gateway_port: int


def hosts_of(document: Mapping[str, Any]) -> tuple[InventoryHost, ...]:
    """Return the hosts of our groups; `document` is what `ansible-inventory --list` gives."""
    variables = document.get("_meta", {}).get("hostvars", {})
    members = {group: document.get(group, {}).get("hosts", []) for group in GROUPS}
    names = sorted({name for hosts in members.values() for name in hosts})
    return tuple(
        InventoryHost(
            name,
            tuple(group for group in GROUPS if name in members[group]),
            str(variables.get(name, {}).get("prfaas_region", "")),
            str(variables.get(name, {}).get("prfaas_address", "")),
            _port(variables.get(name, {}).get("prfaas_gateway_port", _GATEWAY_PORT)),
        )
        for name in names
    )


def names_package(document: Mapping[str, Any]) -> bool:
    """Return whether the inventory says itself what hosts install."""
    variables = document.get("_meta", {}).get("hostvars", {}).values()
    return any({"prfaas_wheel", "prfaas_requirement"} & set(own) for own in variables)


def inventory_problems(hosts: Sequence[InventoryHost], regions: Sequence[str]) -> Iterator[str]:
    """Yield all that is wrong with an inventory; `regions` are those asked for, first prefill."""
    for group in (*ENGINE_GROUPS, "gateway"):
        if not any(group in host.groups for host in hosts):
            yield f"group {group}: no host; allowed: one or more"
    count = sum("etcd" in host.groups for host in hosts)
    if count not in (1, 3, 5):
        yield f"group etcd: {count} hosts; allowed: 1, 3 or 5"
    for host in hosts:
        roles = [group for group in host.groups if group != "etcd"]
        if len(roles) > 1:
            yield f"host {host.name}: in the groups {', '.join(roles)}; allowed: one of them"
        yield from _host_problems(host)
    for region in dict.fromkeys(host.region for host in hosts if host.region):
        if region not in regions:
            yield f"--regions {','.join(regions)}: the inventory has hosts in {region} too"
    for region in regions:
        if not any(host.region == region for host in hosts):
            yield f"--regions: the inventory has no host in {region}"


def _host_problems(host: InventoryHost) -> Iterator[str]:
    """Yield what is wrong with a host's own words, which become names of files and of units."""
    where = f"host {host.name!r:.80}" if not is_name(host.name) else f"host {host.name}"
    if not is_name(host.name):
        yield f"{where}: allowed names: 1 to 40 lowercase letters, digits and dashes"
    for key, value in (("prfaas_region", host.region), ("prfaas_address", host.address)):
        if not value:
            yield f"{where}: {key} is missing"
    if host.region and not is_name(host.region):
        yield f"{where}: prfaas_region {host.region!r:.80}: allowed: as for names of hosts"
    if host.address and not _ADDRESS.fullmatch(host.address):
        yield f"{where}: prfaas_address {host.address!r:.80}: allowed: an IPv4 address or a name"
    if not host.gateway_port:
        yield f"{where}: prfaas_gateway_port: allowed: 1 to 65535"


def _port(value: Any) -> int:
    text = str(value)
    is_port = text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 1 << 16
    return int(text) if is_port else 0


def api_url(hosts: Sequence[InventoryHost]) -> str:
    """Return the base of the first gateway's API."""
    gateway = next(host for host in hosts if "gateway" in host.groups)
    return f"http://{gateway.address}:{gateway.gateway_port}"
