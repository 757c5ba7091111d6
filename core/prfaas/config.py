"""Configuration of one node: the TOML file that `prfaasctl node run ROLE --config FILE` reads.

Every section is a frozen dataclass whose field types are the schema; parsing names file, key, value
and what is allowed, and checks the whole file before anything starts.
"""

import re
import tomllib
import types
import typing
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, get_args, get_origin, get_type_hints

from prfaas.errors import ConfigError
from prfaas.pool_section import PoolSection, pool_limits
from prfaas.records import Role
from prfaas.twin_section import EngineKind, TwinSection, twin_limits

#: Names become parts of file names, of etcd keys and of metrics.
_NAME = re.compile(r"[a-z0-9-]{1,40}")
_SMALLEST_CHUNK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class NodeSection:
    """Who the node is: `host` is bound and advertised, `state_dir` holds sockets and logs.

    `name`, `region` and `deployment` are 1 to 40 lowercase letters, digits and dashes. On
    `agent_port` an engine node's agent serves /metrics and /signals; 0 takes any free port.
    """

    name: str
    role: Role
    region: str
    deployment: str = "default"
    host: str = "127.0.0.1"
    port: int = 0
    agent_port: int = 0
    state_dir: str = "."


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


class Pipelining(StrEnum):
    """What a prefill sends as soon as it is computed."""

    LAYER = "layer"
    CHUNK = "chunk"


class LocalBackend(StrEnum):
    """How caches move between peers of one region: by our lanes, or by a backend of SGLang's."""

    LANES = "lanes"
    MOONCAKE = "mooncake"
    NIXL = "nixl"


@dataclass(frozen=True, slots=True)
class TransferSection:
    """The lanes between peers; handed to the plugin through its environment.

    `lanes`: connections per peer; 0 takes as many as the path needs. `chunk_bytes`: most payload
    bytes of a chunk; 0 follows the path. `digests`: a checksum of every chunk: "on", "off", or
    "auto": unless TLS makes it needless. `compression`: "off", or "auto": chunks are encoded
    without loss while the link is the limit and that pays. `pipelining`: a prefill sends each
    layer, or each of its chunks, as soon as it is computed.
    `local_backend`: how peers of one region send to one another; it never crosses regions.
    `congestion_control`: as the kernel names it, or "auto": the system's, and bbr for paths that
    lose packets though no queue builds up. `source_hosts`: addresses of this machine that a decode
    dials from in turn, one of each network card that is to carry a part.
    """

    lanes: int = 0
    chunk_bytes: int = 0
    liveness_s: float = 2.0
    room_timeout_s: float = 300.0
    blank_groups: tuple[str, ...] = ()
    congestion_control: str = "auto"
    source_hosts: tuple[str, ...] = ()
    digests: str = "auto"
    compression: str = "off"
    pipelining: Pipelining = Pipelining.LAYER
    local_backend: LocalBackend = LocalBackend.LANES


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

    `listen_fd` >= 0 is an inherited listening socket, used instead of `node.host`:`node.port`.
    """

    model_path: str
    threshold_tokens: int = 512
    request_timeout_s: float = 300.0
    connect_timeout_s: float = 5.0
    max_body_bytes: int = 16 << 20
    max_concurrent_requests: int = 1024
    listen_fd: int = -1


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The whole file. `engine` is set for prefill and decode nodes, `gateway` for gateways.

    `pool`: the prefix pool of the host, where it has one.
    """

    node: NodeSection
    etcd: EtcdSection = field(default_factory=EtcdSection)
    engine: EngineSection | None = None
    twin: TwinSection | None = None
    pool: PoolSection | None = None
    transfer: TransferSection = field(default_factory=TransferSection)
    security: SecuritySection = field(default_factory=SecuritySection)
    gateway: GatewaySection | None = None


def parse_node_config(text: str, *, source: str) -> NodeConfig:
    """Parse and check a node's TOML; `source` names the file in errors.

    Raises:
        ConfigError: naming source, key, value and what is allowed.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    config = _parse_section(NodeConfig, raw, where=source, path="")
    assert isinstance(config, NodeConfig)
    _check_role(config, source)
    _check_pool(config, source)
    _check_names(config, source)
    _check_values(config, source)
    _check_security(config, source)
    _check_transfer(config.transfer, source)
    return config


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


def _check_names(config: NodeConfig, source: str) -> None:
    for key in ("name", "region", "deployment"):
        value = getattr(config.node, key)
        if not _NAME.fullmatch(value):
            raise ConfigError(
                f"{source}: node.{key} = {value!r}:"
                " allowed are 1 to 40 lowercase letters, digits and dashes"
            )


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


def _check_transfer(transfer: TransferSection, source: str) -> None:
    if transfer.digests not in ("auto", "on", "off"):
        raise ConfigError(
            f"{source}: transfer.digests = {transfer.digests!r}: allowed: auto, on, off"
        )
    if transfer.compression not in ("auto", "off"):
        raise ConfigError(
            f"{source}: transfer.compression = {transfer.compression!r}: allowed: auto, off"
        )
    if not re.fullmatch(r"[a-z0-9_-]{1,15}", transfer.congestion_control):
        raise ConfigError(
            f"{source}: transfer.congestion_control = {transfer.congestion_control!r}:"
            " allowed: auto, or a name in /proc/sys/net/ipv4/tcp_available_congestion_control"
        )
    for host in transfer.source_hosts:
        try:
            ip_address(host)
        except ValueError:
            raise ConfigError(
                f"{source}: transfer.source_hosts: {host!r}: allowed are addresses of this machine"
            ) from None
    if 0 < transfer.chunk_bytes < _SMALLEST_CHUNK_BYTES:
        raise ConfigError(
            f"{source}: transfer.chunk_bytes = {transfer.chunk_bytes}:"
            f" allowed is 0 or {_SMALLEST_CHUNK_BYTES} to {64 << 20}"
        )


def _check_values(config: NodeConfig, source: str) -> None:
    checks: list[tuple[str, float, float, float]] = [
        ("node.port", config.node.port, 0, 65535),
        ("node.agent_port", config.node.agent_port, 0, 65535),
        ("etcd.lease_ttl_s", config.etcd.lease_ttl_s, 1, 3600),
        ("transfer.lanes", config.transfer.lanes, 0, 64),
        ("transfer.chunk_bytes", config.transfer.chunk_bytes, 0, 64 << 20),
        ("transfer.liveness_s", config.transfer.liveness_s, 0.1, 3600),
        ("transfer.room_timeout_s", config.transfer.room_timeout_s, 1, 86400),
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
        checks.append(("gateway.request_timeout_s", gateway.request_timeout_s, 0.1, 86400))
        checks.append(("gateway.connect_timeout_s", gateway.connect_timeout_s, 0.01, 3600))
        checks.append(("gateway.max_body_bytes", gateway.max_body_bytes, 1024, 1 << 30))
        checks.append(
            ("gateway.max_concurrent_requests", gateway.max_concurrent_requests, 1, 1 << 20)
        )
    for key, value, low, high in checks:
        if not low <= value <= high:
            raise ConfigError(f"{source}: {key} = {value}: allowed is {low} to {high}")


def _parse_section(cls: type[Any], raw: Any, *, where: str, path: str) -> Any:
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: {path or 'file'}: expected a table, got {raw!r}")
    hints = get_type_hints(cls)
    names = [item.name for item in fields(cls)]
    for key in raw:
        if key not in names:
            raise ConfigError(
                f"{where}: {_join(path, key)}: unknown key; allowed: {', '.join(names)}"
            )
    values = {}
    for item in fields(cls):
        if item.name in raw:
            values[item.name] = _parse_value(
                hints[item.name], raw[item.name], where=where, path=_join(path, item.name)
            )
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ConfigError(f"{where}: {_join(path, item.name)}: missing")
    return cls(**values)


def _parse_value(hint: Any, value: Any, *, where: str, path: str) -> Any:
    if get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    if is_dataclass(hint):
        return _parse_section(typing.cast("type[Any]", hint), value, where=where, path=path)
    if get_origin(hint) is tuple and isinstance(value, list):
        element = get_args(hint)[0]
        return tuple(_parse_value(element, item, where=where, path=path) for item in value)
    if get_origin(hint) is dict and isinstance(value, dict):
        element = get_args(hint)[1]
        return {
            k: _parse_value(element, v, where=where, path=_join(path, k)) for k, v in value.items()
        }
    return _parse_scalar(hint, value, where=where, path=path)


def _parse_scalar(hint: Any, value: Any, *, where: str, path: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if value not in list(hint):
            raise ConfigError(f"{where}: {path} = {value!r}: allowed: {', '.join(hint)}")
        return hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if get_origin(hint) is None and type(value) is hint:
        return value
    name = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{where}: {path} = {value!r}: expected {name}")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def render_node_config(config: NodeConfig) -> str:
    """Return the TOML text that `parse_node_config` reads back to an equal value."""
    lines: list[str] = []
    for section in fields(config):
        value = getattr(config, section.name)
        if value is None:
            continue
        lines.append(f"[{section.name}]")
        lines.extend(
            f"{item.name} = {_render_value(getattr(value, item.name))}" for item in fields(value)
        )
        lines.append("")
    return "\n".join(lines)


def _render_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_render_value(item) for item in value) + "]"
    assert isinstance(value, dict)
    return "{ " + ", ".join(f"{_quote(k)} = {_render_value(v)}" for k, v in value.items()) + " }"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for char, code in (("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        escaped = escaped.replace(char, code)
    if any(ord(char) < 32 or ord(char) == 127 for char in escaped):
        raise ConfigError(f"control character in {text!r}")
    return f'"{escaped}"'
