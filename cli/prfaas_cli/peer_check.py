"""What `node check` asks the deployment: who is registered, does it fit, can it be reached."""

import asyncio
import socket
import ssl
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from prfaas.config import NodeConfig, SecurityMode
from prfaas.errors import PrfaasError
from prfaas.pairing import layout_problem
from prfaas.records import NodeRecord, Role

_ETCD_TIMEOUT_S = 3.0
_CONNECT_TIMEOUT_S = 3.0


def registered(config: NodeConfig) -> tuple[list[NodeRecord], str | None]:
    """Return the registered nodes of a node's deployment, and why they cannot be read."""
    from prfaas_agent.registration import read_nodes
    from prfaas_coord import EtcdClient

    async def ask() -> list[NodeRecord]:
        async with EtcdClient.of(config, call_timeout_s=_ETCD_TIMEOUT_S) as client:
            return await read_nodes(client, config.node.deployment)

    try:
        return asyncio.run(ask()), None
    except PrfaasError as error:
        return [], f"{error}; start etcd or correct etcd.endpoints"


def layout_problems(nodes: Sequence[NodeRecord]) -> str | None:
    """Return the first two registered nodes that cannot send each other caches."""
    for index, node in enumerate(nodes):
        problem = layout_problem(node, nodes[:index])
        if problem:
            return problem
    return None


def unreachable(config: NodeConfig, nodes: Sequence[NodeRecord]) -> Iterator[tuple[str, str]]:
    """Yield what cannot be reached from here of other nodes, and what to do."""
    try:
        context = _context(config)
    except PrfaasError as error:
        yield "certificate", str(error)
        return
    for node in nodes:
        if node.name == config.node.name:
            continue
        # A gateway's port is for clients: plain, or with a certificate of its public name.
        tls = None if node.role is Role.GATEWAY else context
        for what, host, port in _addresses(node):
            problem = _problem(host, port, tls)
            if problem:
                advice = f"is it up, routed, and the port open from {config.node.host}?"
                yield f"{node.name} {what}", f"{host}:{port}: {problem}; {advice}"


def _addresses(node: NodeRecord) -> Iterator[tuple[str, str, int]]:
    url = urlsplit(node.url)
    if url.hostname and url.port:
        yield "HTTP", url.hostname, url.port
    if node.role is Role.PREFILL and node.bootstrap_port:
        yield "bootstrap", node.bootstrap_host, node.bootstrap_port


def _context(config: NodeConfig) -> ssl.SSLContext | None:
    """Return how to speak to nodes. Raises: ConfigError, the certificate's files are unusable."""
    if config.security.mode is not SecurityMode.MTLS:
        return None
    from prfaas_transport.security import tls_files
    from prfaas_transport.tls_context import TlsContexts

    return TlsContexts(tls_files(config.security)).http_client()


def _problem(host: str, port: int, context: ssl.SSLContext | None) -> str | None:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S) as connection:
            if context is not None:
                context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLError as error:
        return f"TLS refused: {error.reason or error}"
    except OSError as error:
        return error.strerror or str(error)
    return None
