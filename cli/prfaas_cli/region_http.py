"""Short HTTP requests to services inside a region's namespace, without leaving ours for long."""

import base64
import http.client
import json
import socket
import ssl
from typing import Any

from prfaas.errors import StateError
from prfaas.keys import nodes_prefix
from prfaas.records import NodeRecord

_TIMEOUT_S = 2.0


class _SocketConnection(http.client.HTTPConnection):
    """A connection over a socket that was made elsewhere: sockets keep their namespace."""

    def __init__(self, connected: socket.socket, host: str) -> None:
        super().__init__(host)
        self.sock = connected


def request(
    namespace: str,
    address: tuple[str, int],
    path: str,
    *,
    body: dict[str, Any] | None = None,
    tls: ssl.SSLContext | None = None,
) -> dict[str, Any] | None:
    """Return the JSON object that a service answers with status 200; None for anything else.

    GET without `body`, POST with it; inside TLS with `tls`.
    """
    from prfaas_netem import inside

    try:
        with inside(namespace):
            connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with connected:
            connected.settimeout(_TIMEOUT_S)
            connected.connect(address)
            with tls.wrap_socket(connected, server_hostname=address[0]) if tls else connected as s:
                return _exchange(_SocketConnection(s, address[0]), path, body)
    except (OSError, http.client.HTTPException, ValueError, StateError):
        # A missing namespace is one more way of not answering.
        return None


def registered_nodes(
    namespace: str,
    address: tuple[str, int],
    *,
    deployment: str,
    tls: ssl.SSLContext | None = None,
) -> dict[str, NodeRecord] | None:
    """Return the nodes that are registered in etcd by name; None when etcd does not answer.

    Source: etcd 3.4 and 3.5, gRPC gateway `/v3/kv/range`.
    """
    prefix = nodes_prefix(deployment).encode()
    end = prefix[:-1] + bytes([prefix[-1] + 1])
    body = {"key": base64.b64encode(prefix).decode(), "range_end": base64.b64encode(end).decode()}
    answer = request(namespace, address, "/v3/kv/range", body=body, tls=tls)
    if answer is None:
        return None
    values = [base64.b64decode(item["value"]) for item in answer.get("kvs", [])]
    return {record.name: record for record in map(NodeRecord.from_json, values)}


def _exchange(
    connection: http.client.HTTPConnection, path: str, body: dict[str, Any] | None
) -> dict[str, Any] | None:
    if body is None:
        connection.request("GET", path)
    else:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    if response.status != 200:
        return None
    value = json.loads(text)
    return value if isinstance(value, dict) else {"value": value}
