"""From a list of `host:port` to the one target string that gRPC understands."""

import ipaddress
from collections.abc import Sequence

from prfaas.errors import ConfigError

MEMBERS_NAME = "prfaas-etcd"
"""What the certificates of several members all name, besides their addresses."""


def grpc_target(endpoints: Sequence[str]) -> str:
    """Return the gRPC target of some etcd endpoints.

    Several endpoints must be addresses of one family: gRPC resolves only a single name.

    >>> grpc_target(["10.0.0.1:2379", "10.0.0.2:2379"])
    'ipv4:10.0.0.1:2379,10.0.0.2:2379'
    >>> grpc_target(["etcd.example:2379"])
    'dns:///etcd.example:2379'

    Raises:
        ConfigError: no endpoint, a malformed one, or a mix that gRPC cannot express.
    """
    if not endpoints:
        raise ConfigError("etcd.endpoints: empty; expected a list of host:port")
    families = {_family(endpoint) for endpoint in endpoints}
    if families == {"dns"} and len(endpoints) == 1:
        return f"dns:///{endpoints[0]}"
    if len(families) > 1 or "dns" in families:
        raise ConfigError(
            f"etcd.endpoints = {list(endpoints)}: several must all be IP addresses of one family"
        )
    return f"{families.pop()}:{','.join(endpoints)}"


def tls_options(endpoints: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the channel options for TLS to some etcd endpoints.

    gRPC checks one name for all addresses of a target: of several, that which they share.

    >>> tls_options(["10.0.0.1:2379", "10.0.0.2:2379"])
    (('grpc.ssl_target_name_override', 'prfaas-etcd'),)
    >>> tls_options(["10.0.0.1:2379"])
    ()

    Source: grpc 1.7x, `default_authority` of the `ipv4:` resolver is the whole list.
    """
    if len(endpoints) == 1:
        return ()
    return (("grpc.ssl_target_name_override", MEMBERS_NAME),)


def _family(endpoint: str) -> str:
    host, colon, port = endpoint.rpartition(":")
    if not colon or not host or "/" in endpoint or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"etcd.endpoints: {endpoint!r}: expected host:port without a scheme")
    try:
        return f"ipv{ipaddress.ip_address(host.strip('[]')).version}"
    except ValueError:
        return "dns"
