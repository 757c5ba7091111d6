"""From options to processes and their configuration; no effect on the machine."""

import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from prfaas.config import (
    EngineSection,
    EtcdSection,
    NodeConfig,
    NodeSection,
    SecurityMode,
    render_node_config,
)
from prfaas.records import Role
from prfaas.transfer_section import LocalBackend, Pipelining, TransferSection
from prfaas.twin_section import EngineKind
from prfaas_cli.credentials import security_section
from prfaas_cli.deploy_gateway import gateway_sections, has_tls
from prfaas_cli.deploy_pool import pool_commands, pool_section
from prfaas_cli.deploy_twin import twin_section
from prfaas_cli.options import DeployOptions, topology_of
from prfaas_cli.place import Place

if TYPE_CHECKING:
    from prfaas_netem import Topology

ETCD_PORT = 2379
#: Engines are numbered through, and have the port of their number after these.
ENGINE_PORT = 30000
BOOTSTRAP_PORT = 30500
AGENT_PORT = 31000
LISTEN_FD = 100
"""The number under which the gateway inherits its listening socket."""
GATEWAY_HOST = "127.0.0.1"
_ETCD_QUOTA_BYTES = 256 << 20
#: Agents deregister dead engines themselves; a killed agent has this long to come back unnoticed.
_LEASE_TTL_S = 15


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process that the supervisor keeps running.

    `namespace` is empty for the machine's own; `listen` is `host:port` of a socket that the process
    inherits as LISTEN_FD, bound in the machine's own namespace, or empty. The processes of the
    first `stop_wave` are ended before those of the next.
    """

    name: str
    argv: tuple[str, ...]
    namespace: str = ""
    listen: str = ""
    stop_wave: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "ProcessSpec":
        """Return what `to_json` gave."""
        return cls(**(raw | {"argv": tuple(raw["argv"])}))


@dataclass(frozen=True, slots=True)
class DeployPlan:
    """Everything a deployment consists of."""

    topology: "Topology"
    nodes: tuple[NodeConfig, ...]
    processes: tuple[ProcessSpec, ...]

    def config_texts(self) -> dict[str, str]:
        """Return the configuration file of every node by its name."""
        return {config.node.name: render_node_config(config) for config in self.nodes}


def plan_deployment(
    place: Place, options: DeployOptions, *, etcd: str, start_timeout_s: float
) -> DeployPlan:
    """Return what to run; `etcd` is the path of the etcd binary."""
    topology = topology_of(place.name, options)
    engines = (
        _engine_node(place, options, topology, engine, slot=slot)
        for slot, engine in enumerate(engines_of(options))
    )
    configs = (*engines, _gateway_node(place, options, topology))
    nodes = tuple(_with_start_timeout(config, start_timeout_s) for config in configs)
    etcd_process = _etcd_process(place, options, topology, etcd)
    pools = (
        ProcessSpec(name, argv, stop_wave=1) for name, argv in pool_commands(place, options).items()
    )
    processes = (*pools, *_processes(place, topology, nodes, etcd_process))
    if not options.is_twin:
        processes = (_fork_server(place), *processes)  # first: it takes longest
    return DeployPlan(topology, nodes, processes)


def node_name(region: str, role: Role, number: int = 0) -> str:
    """Return the name of a region's node.

    >>> node_name("a", Role.PREFILL)
    'a-prefill-0'
    """
    return f"{region}-{role}-{number}"


@dataclass(frozen=True, slots=True)
class PlannedEngine:
    """An engine of a deployment: which node, and what it is at first."""

    name: str
    role: Role
    region: str


def engines_of(options: DeployOptions) -> tuple[PlannedEngine, ...]:
    """Return all engines of a deployment, in the order of their ports."""
    roles = [(Role.PREFILL, region) for region in options.regions]
    roles.append((Role.DECODE, options.home))
    return tuple(
        PlannedEngine(node_name(region, role, number), role, region)
        for (role, region), count in zip(roles, options.instances, strict=True)
        for number in range(count)
    )


def api_url(options: DeployOptions) -> str:
    """Return the base of the OpenAI API."""
    return f"http{'s' if has_tls(options) else ''}://{GATEWAY_HOST}:{options.port}"


def _engine_node(
    place: Place,
    options: DeployOptions,
    topology: "Topology",
    planned: PlannedEngine,
    *,
    slot: int,
) -> NodeConfig:
    dtype = () if options.dtype == "float32" else ("--dtype", options.dtype)
    has_bootstrap = planned.role is Role.PREFILL or options.role_switch
    engine = EngineSection(
        model_path=options.model_path,
        engine=EngineKind(options.engine),
        device="cpu",
        bootstrap_port=BOOTSTRAP_PORT + slot if has_bootstrap else 0,
        fork_server="" if options.is_twin else str(place.fork_socket),
        decode_cache=options.decode_cache,
        role_switch=options.role_switch,
        cache_events=options.cache_events,
        extra_args=(*dtype, *options.engine_args),
    )
    node = _node(
        place,
        topology,
        planned.role,
        name=planned.name,
        region=planned.region,
        port=ENGINE_PORT + slot,
    )
    security = security_section(place, options, node.name)
    return NodeConfig(
        node=replace(node, agent_port=AGENT_PORT + slot),
        etcd=_etcd(options, topology),
        engine=engine,
        twin=twin_section(options, planned.region),
        pool=pool_section(place, options, planned.role, region=planned.region),
        transfer=TransferSection(
            pipelining=Pipelining(options.pipelining),
            local_backend=LocalBackend(options.local_backend),
        ),
        security=security,
    )


def _gateway_node(place: Place, options: DeployOptions, topology: "Topology") -> NodeConfig:
    gateway, api = gateway_sections(place, options)
    gateway = replace(gateway, listen_fd=LISTEN_FD)
    name = node_name(options.home, Role.GATEWAY)
    node = _node(place, topology, Role.GATEWAY, name=name, region=options.home, port=options.port)
    security = security_section(place, options, node.name)
    return NodeConfig(
        node=node, etcd=_etcd(options, topology), gateway=gateway, security=security, api=api
    )


def _node(
    place: Place, topology: "Topology", role: Role, *, name: str, region: str, port: int
) -> NodeSection:
    return NodeSection(
        name=name,
        role=role,
        region=region,
        deployment=place.name,
        host=topology.address(region),
        port=port,
        state_dir=str(place.directory),
    )


def _etcd(options: DeployOptions, topology: "Topology") -> EtcdSection:
    endpoint = f"{topology.address(options.home)}:{ETCD_PORT}"
    return EtcdSection(endpoints=(endpoint,), lease_ttl_s=_LEASE_TTL_S)


def _with_start_timeout(config: NodeConfig, start_timeout_s: float) -> NodeConfig:
    if config.engine is None:
        return config
    return replace(config, engine=replace(config.engine, start_timeout_s=start_timeout_s))


def _fork_server(place: Place) -> ProcessSpec:
    argv = (sys.executable, "-m", "prfaas_cpu.forkserver", "--socket", str(place.fork_socket))
    return ProcessSpec("forkserver", argv, stop_wave=1)


def _processes(
    place: Place, topology: "Topology", nodes: tuple[NodeConfig, ...], etcd: ProcessSpec
) -> tuple[ProcessSpec, ...]:
    link = [sys.executable, "-m", "prfaas_netem.link", "--topology", str(place.topology_file)]
    return (
        etcd,
        ProcessSpec("link", (*link, "--control", str(place.link_socket)), stop_wave=1),
        *(_node_process(place, topology, config) for config in nodes),
    )


def _node_process(place: Place, topology: "Topology", config: NodeConfig) -> ProcessSpec:
    node = config.node
    command = [sys.executable, "-m", "prfaas_cli", "node", "run", str(node.role)]
    return ProcessSpec(
        name=node.name,
        argv=(*command, "--config", str(place.config_file(node.name))),
        namespace=topology.namespace(node.region),
        listen=f"{GATEWAY_HOST}:{node.port}" if node.role is Role.GATEWAY else "",
    )


def etcd_name(options: DeployOptions) -> str:
    """Return the name of the etcd process."""
    return f"{options.home}-etcd-0"


def _etcd_process(
    place: Place, options: DeployOptions, topology: "Topology", etcd: str
) -> ProcessSpec:
    region = options.home
    name = etcd_name(options)
    security = security_section(place, options, name)
    is_tls = security.mode is SecurityMode.MTLS
    client_url = f"http{'s' if is_tls else ''}://{topology.address(region)}:{ETCD_PORT}"
    peer_url = f"http://127.0.0.1:{ETCD_PORT + 1}"
    argv = [etcd, "--name", name, "--data-dir", str(place.directory / "etcd")]
    argv += ["--listen-client-urls", client_url, "--advertise-client-urls", client_url]
    argv += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
    argv += ["--initial-cluster", f"{name}={peer_url}"]
    argv += ["--auto-compaction-mode", "periodic", "--auto-compaction-retention", "5m"]
    argv += ["--quota-backend-bytes", str(_ETCD_QUOTA_BYTES), "--logger", "zap"]
    argv += ["--log-level", "warn"]
    if is_tls:
        argv += ["--cert-file", security.cert, "--key-file", security.key]
        argv += ["--trusted-ca-file", security.ca, "--client-cert-auth"]
    return ProcessSpec(
        name=name, argv=tuple(argv), namespace=topology.namespace(region), stop_wave=1
    )
