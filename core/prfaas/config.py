"""Configuration of one node: the TOML file that `prfaasctl node run ROLE --config FILE` reads.

Every section is a frozen dataclass whose field types are the schema; parsing names file, key, value
and what is allowed, and checks the whole file before anything starts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from prfaas.api_section import ApiSection, api_limits, api_problems
from prfaas.errors import ConfigError
from prfaas.names import check_name
from prfaas.pool_section import PoolSection, pool_limits, pool_problems
from prfaas.records import Role
from prfaas.toml_sections import read_sections, render_sections
from prfaas.transfer_section import (
    LocalBackend,
    TransferSection,
    transfer_limits,
    transfer_problems,
)
from prfaas.twin_section import EngineKind, TwinSection, twin_limits


@dataclass(frozen=True, slots=True)
class NodeSection:
    """Who the node is: `host` is bound and advertised, `state_dir` holds sockets and logs.

    `name`, `region` and `deployment` are 1 to 40 lowercase letters, digits and dashes. On
    `agent_port` an engine node's agent serves /metrics and /signals; 0 takes any free port.
    `residency` are labels of where the node stands, such as "eu": see docs/routing.md.
    """

    name: str
    role: Role
    region: str
    deployment: str = "default"
    host: str = "127.0.0.1"
    port: int = 0
    agent_port: int = 0
    state_dir: str = "."
    residency: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EtcdSection:
    """How to reach etcd. `lease_ttl_s` is how long a dead node stays listed."""

    endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    lease_ttl_s: int = 5


@dataclass(frozen=True, slots=True)
class EngineSection:
    """The engine of a prefill or decode node: SGLang, or the twin that `[twin]` describes.

    `fork_server` is the path of the CPU kit's fork server socket, empty for a cold start;
    `extra_args` are passed to SGLang as they are; `env` is added to its environment.

    `decode_cache`: as a decode, keep what finished requests leave, so that a prefill sends only
    what is new. `role_switch`: the engine may change between prefill and decode while it runs; it
    needs `decode_cache` (SGLang keeps one cache through both roles) and a bootstrap port whatever
    its role. `decode_cuda_graph_memory_gb` of device memory must be free for it to become a decode
    that captures graphs. `cache_events`: publish every change of the prefix cache, for who routes
    by it.
    """

    model_path: str
    engine: EngineKind = EngineKind.SGLANG
    model_id: str = ""
    device: str = "cuda"
    bootstrap_port: int = 0
    fork_server: str = ""
    start_timeout_s: float = 600.0
    decode_cache: bool = False
    role_switch: bool = False
    decode_cuda_graph_memory_gb: float = 0.0
    cache_events: bool = False
    extra_args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


class SecurityMode(StrEnum):
    """What protects what a node says to nodes of other regions."""

    OFF = "off"
    SECRET = "secret"  # noqa: S105 - a mode, not a secret
    MTLS = "mtls"


@dataclass(frozen=True, slots=True)
class SecuritySection:
    """Protection of all that crosses regions; all nodes of a deployment have the same mode.

    `secret`: peers and rooms are proven by the secret in `secret_file`; nothing is encrypted.
    `mtls`: `ca`, `cert` and `key` (PEM files, read again when they change) for lanes, bootstrap,
    engines' HTTP and etcd; `secret_file` may come on top. Dialled lanes older than `max_lane_age_s`
    are dialled anew, so that no certificate is used much longer than that.
    """

    mode: SecurityMode = SecurityMode.OFF
    ca: str = ""
    cert: str = ""
    key: str = ""
    secret_file: str = ""
    max_lane_age_s: float = 86400.0


@dataclass(frozen=True, slots=True)
class GatewaySection:
    """The gateway. `region` (of the node) is where requests are decoded.

    `absorb_tokens` is the fallback budget: prompts that another region was to prefill are taken
    home only while no more prompt tokens wait for the local prefill node; beyond that they are
    refused. `listen_fd` >= 0 is an inherited listening socket, used instead of `node.host`:
    `node.port`. `case` is the file of the site's case, by which the leading gateway plans; empty:
    it plans nothing. Requests that run when the gateway is stopped have `drain_s` to end.
    """

    model_path: str
    threshold_tokens: int = 512
    request_timeout_s: float = 300.0
    connect_timeout_s: float = 5.0
    max_body_bytes: int = 16 << 20
    max_concurrent_requests: int = 1024
    absorb_tokens: int = 131072
    case: str = ""
    listen_fd: int = -1
    drain_s: float = 10.0


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The whole file. `engine` is set for prefill and decode nodes, `gateway` for gateways.

    `pool`: the prefix pool of the host, where it has one. `api` is of gateways only.
    """

    node: NodeSection
    etcd: EtcdSection = field(default_factory=EtcdSection)
    engine: EngineSection | None = None
    twin: TwinSection | None = None
    pool: PoolSection | None = None
    transfer: TransferSection = field(default_factory=TransferSection)
    security: SecuritySection = field(default_factory=SecuritySection)
    gateway: GatewaySection | None = None
    api: ApiSection = field(default_factory=ApiSection)


def parse_node_config(text: str, *, source: str) -> NodeConfig:
    """Parse and check a node's TOML; `source` names the file in errors.

    Raises:
        ConfigError: naming source, key, value and what is allowed.
    """
    config = read_sections(NodeConfig, text, source=source)
    _check_role(config, source)
    _check_pool(config, source)
    _check_names(config, source)
    _check_values(config, source)
    _check_security(config, source)
    for problem in (*transfer_problems(config.transfer), *api_problems(config.api)):
        raise ConfigError(f"{source}: {problem}")
    for problem in local_backend_problems(
        config.transfer.local_backend,
        engine=config.engine.engine if config.engine else EngineKind.SGLANG,
        security=config.security.mode,
    ):
        raise ConfigError(f"{source}: transfer.local_backend: {problem}")
    return config


def render_node_config(config: NodeConfig) -> str:
    """Return the TOML text that `parse_node_config` reads back to an equal value."""
    return render_sections(config)


def local_backend_problems(
    backend: LocalBackend, *, engine: EngineKind, security: SecurityMode
) -> Iterator[str]:
    """Yield why a local backend does not go with the rest of a node.

    A twin has lanes only. A backend of SGLang's listens without TLS on the node's address, and asks
    a prefill's bootstrap without TLS whether it is there, which with TLS on is taken for dead.
    """
    if backend is LocalBackend.LANES:
        return
    if engine is EngineKind.TWIN:
        yield f"{backend} is not for a twin; allowed: {LocalBackend.LANES}"
    if security is SecurityMode.MTLS:
        yield f"{backend} knows no TLS; with mtls allowed: {LocalBackend.LANES}"


def _check_role(config: NodeConfig, source: str) -> None:
    section = "gateway" if config.node.role is Role.GATEWAY else "engine"
    if getattr(config, section) is None:
        raise ConfigError(f"{source}: a {config.node.role} node needs a section [{section}]")
    engine = config.engine
    if engine is None:
        return
    if not engine.bootstrap_port and (config.node.role is Role.PREFILL or engine.role_switch):
        who = "engine.role_switch" if engine.role_switch else "a prefill node"
        raise ConfigError(f"{source}: engine.bootstrap_port: {who} needs one (1 to 65535)")
    if engine.role_switch and not engine.decode_cache:
        raise ConfigError(f"{source}: engine.decode_cache: engine.role_switch needs it to be true")


def _check_pool(config: NodeConfig, source: str) -> None:
    if config.pool is None:
        return
    if config.node.role is not Role.PREFILL or config.engine is None:
        raise ConfigError(f"{source}: pool: only a prefill node keeps prefixes in a pool")
    if config.engine.engine is not EngineKind.SGLANG:
        raise ConfigError(f"{source}: pool: engine.engine must be sglang")
    if config.engine.role_switch:
        raise ConfigError(f"{source}: pool: not with engine.role_switch")
    for problem in pool_problems(config.pool):
        raise ConfigError(f"{source}: {problem}")


def _check_names(config: NodeConfig, source: str) -> None:
    for key in ("name", "region", "deployment"):
        check_name(f"{source}: node.{key} =", getattr(config.node, key))
    for label in config.node.residency:
        check_name(f"{source}: node.residency:", label)


def _check_security(config: NodeConfig, source: str) -> None:
    security = config.security
    needed: dict[SecurityMode, tuple[str, ...]] = {
        SecurityMode.OFF: (),
        SecurityMode.SECRET: ("secret_file",),
        SecurityMode.MTLS: ("ca", "cert", "key"),
    }
    for key in needed[security.mode]:
        if not getattr(security, key):
            raise ConfigError(
                f'{source}: security.{key}: missing; mode = "{security.mode}" needs it'
            )


def _check_values(config: NodeConfig, source: str) -> None:
    checks: list[tuple[str, float, float, float]] = [
        ("node.port", config.node.port, 0, 65535),
        ("node.agent_port", config.node.agent_port, 0, 65535),
        ("etcd.lease_ttl_s", config.etcd.lease_ttl_s, 1, 3600),
        *transfer_limits(config.transfer),
        *api_limits(config.api),
        ("security.max_lane_age_s", config.security.max_lane_age_s, 1, 30 * 86400),
    ]
    if config.engine:
        checks.append(("engine.bootstrap_port", config.engine.bootstrap_port, 0, 65535))
        checks.append(("engine.start_timeout_s", config.engine.start_timeout_s, 1, 86400))
        memory_gb = config.engine.decode_cuda_graph_memory_gb
        checks.append(("engine.decode_cuda_graph_memory_gb", memory_gb, 0, 1024))
    if config.twin:
        checks.extend(twin_limits(config.twin))
    if config.pool:
        checks.extend(pool_limits(config.pool))
    if config.gateway:
        gateway = config.gateway
        checks.append(("gateway.threshold_tokens", gateway.threshold_tokens, 0, 1 << 30))
        checks.append(("gateway.absorb_tokens", gateway.absorb_tokens, 0, 1 << 40))
        checks.append(("gateway.request_timeout_s", gateway.request_timeout_s, 0.1, 86400))
        checks.append(("gateway.connect_timeout_s", gateway.connect_timeout_s, 0.01, 3600))
        checks.append(("gateway.drain_s", gateway.drain_s, 0, 3600))
        checks.append(("gateway.max_body_bytes", gateway.max_body_bytes, 1024, 1 << 30))
        checks.append(
            ("gateway.max_concurrent_requests", gateway.max_concurrent_requests, 1, 1 << 20)
        )
    for key, value, low, high in checks:
        if not low <= value <= high:
            raise ConfigError(f"{source}: {key} = {value}: allowed is {low} to {high}")
