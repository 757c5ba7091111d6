"""What a person asks of `deploy`, checked; no effect on the machine."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from prfaas.config import SecurityMode, local_backend_problems
from prfaas.errors import ConfigError
from prfaas.transfer_section import LocalBackend, Pipelining
from prfaas.twin_section import EngineKind
from prfaas_cli.deploy_gateway import gateway_problems
from prfaas_cli.deploy_pool import pool_problems
from prfaas_cli.deploy_twin import scaled_link, twin_problems
from prfaas_cli.failures import ProblemsError

if TYPE_CHECKING:
    from prfaas_netem import LinkSpec, Topology

DTYPES = ("float32", "bfloat16", "float16")
_BAD_OPTION = 2
_OPTIONS = {
    "model_path": "model",
    "threshold_tokens": "threshold",
    "engine_args": "engine-arg",
    "cors_origins": "cors-origin",
    "settings": "set",
}


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """The choices that make a deployment what it is; two deploys with equal ones are the same.

    The last of `regions` decodes, the others prefill for it. `instances` are the numbers of
    prefills in each, then of decodes. `profiles` (one per region), `scale` and `dilation` are the
    twin's. `pool_bytes` is the size of each region's prefix pool; 0: none. `topology` is the text
    of a topology file, which then says what the links are; empty: all are alike. `api_keys` is the
    gateway's keys file, `tls` a certificate of the deployment's CA for its port, `tls_cert` and
    `tls_key` files of one's own; `settings` are further numbers of its sections, `name=value`.
    """

    regions: tuple[str, ...]
    model_path: str
    port: int
    threshold_tokens: int
    link_rate: str
    link_rtt: str
    dtype: str
    engine_args: tuple[str, ...]
    security: str = "off"
    pipelining: str = Pipelining.LAYER.value
    local_backend: str = LocalBackend.LANES.value
    decode_cache: bool = False
    role_switch: bool = False
    cache_events: bool = False
    engine: str = EngineKind.SGLANG.value
    instances: tuple[int, ...] = (1, 1, 1)
    profiles: tuple[str, ...] = ("paper-1t-h200", "paper-1t-h20")
    scale: float = 1000.0
    dilation: float = 1.0
    pool_bytes: int = 0
    topology: str = ""
    api_keys: str = ""
    tls: bool = False
    tls_cert: str = ""
    tls_key: str = ""
    cors_origins: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """The region that decodes, with gateway and etcd."""
        return self.regions[-1]

    @property
    def is_twin(self) -> bool:
        """Whether profiles stand in the place of a model's compute."""
        return self.engine == EngineKind.TWIN

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "DeployOptions":
        """Return what `to_json` gave.

        Raises:
            ConfigError: another version of prfaasctl wrote it.
            TypeError: it is damaged.
        """
        if {item.name for item in fields(cls)} != set(raw):
            raise ConfigError("deployed by another version of prfaasctl; destroy it first")
        values: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in raw.items()
        }
        for key, hint in get_type_hints(cls).items():
            if not isinstance(values[key], get_origin(hint) or hint):
                raise TypeError(f"{key} is {values[key]!r}")
        return cls(**values)

    def differences(self, other: "DeployOptions") -> list[str]:
        """Return what differs, as `option: running value -> asked value`."""
        names = [item.name for item in fields(self)]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [
            f"{_option(name)}: {_shown(name, mine)} -> {_shown(name, its)}"
            for name, mine, its in pairs
            if mine != its
        ]


def topology_of(name: str, options: DeployOptions) -> "Topology":
    """Return the regions and the links, as they must be emulated.

    Raises:
        ConfigError: naming the option and what is allowed.
    """
    from prfaas_netem import Topology, parse_topology

    if not options.topology:
        link = scaled_link(_link_of(options), options)
        return Topology.plan(deployment=name, regions=options.regions, link=link)
    try:
        topology = replace(parse_topology(options.topology), deployment=name)
    except ConfigError as error:
        raise ConfigError(f"--topology: {error}") from None
    for region in options.regions:
        if region not in topology.regions:
            allowed = ", ".join(topology.regions)
            raise ConfigError(f"--regions: {region!r} is not in --topology; allowed: {allowed}")
    stretch = options.dilation if options.is_twin else 1.0
    return topology.mapped(lambda link: scaled_link(link, options), stretch=stretch)


def _link_of(options: DeployOptions) -> "LinkSpec":
    from prfaas_netem import LinkSpec

    try:
        return LinkSpec.parse(rate=options.link_rate, rtt=options.link_rtt)
    except ConfigError as error:
        raise ConfigError(str(error).replace("--r", "--link-r", 1)) from None


def check_options(name: str, options: DeployOptions, *, timeout_s: float) -> None:
    """Check everything that can be checked without looking at the machine.

    Raises:
        ProblemsError: all of them, exit code 2.
    """
    found = list(_link_problems(name, options))
    if not 1 <= options.port <= 65535:
        found.append(f"--port {options.port}: allowed is 1 to 65535")
    if not 0 <= options.threshold_tokens <= 1 << 30:
        found.append(f"--threshold {options.threshold_tokens}: allowed is 0 to {1 << 30} tokens")
    if not 0 < timeout_s < math.inf:
        found.append(f"--timeout {timeout_s:g}: must be above 0 seconds and finite")
    if options.dtype not in DTYPES:
        found.append(f"--dtype {options.dtype}: allowed: {', '.join(DTYPES)}")
    if options.security not in list(SecurityMode):
        found.append(f"--security {options.security}: allowed: {', '.join(SecurityMode)}")
    if options.local_backend not in list(LocalBackend):
        allowed = ", ".join(LocalBackend)
        found.append(f"--local-backend {options.local_backend}: allowed: {allowed}")
    elif options.engine in list(EngineKind) and options.security in list(SecurityMode):
        found += [
            f"--local-backend: {problem}"
            for problem in local_backend_problems(
                LocalBackend(options.local_backend),
                engine=EngineKind(options.engine),
                security=SecurityMode(options.security),
            )
        ]
    if options.pipelining not in list(Pipelining):
        found.append(f"--pipelining {options.pipelining}: allowed: {', '.join(Pipelining)}")
    found += twin_problems(options)
    found += pool_problems(options)
    found += gateway_problems(options)
    if found:
        raise ProblemsError(found, exit_code=_BAD_OPTION)


def _link_problems(name: str, options: DeployOptions) -> Iterator[str]:
    from prfaas_netem import Topology

    checks = (
        lambda: Topology.plan(deployment=name, regions=options.regions),
        lambda: scaled_link(_link_of(options), options),
        lambda: options.topology and topology_of(name, options),
    )
    for check in checks:
        try:
            check()
        except ConfigError as error:
            yield str(error)


def find_model(name_or_directory: str) -> str:
    """Return the model directory: a path as given, else a tiny model of that name."""
    from prfaas_cpu.models import default_models_dir

    if "/" in name_or_directory or Path(name_or_directory).is_dir():
        return str(Path(name_or_directory).resolve())
    return str(default_models_dir() / name_or_directory)


def _option(field: str) -> str:
    return "--" + _OPTIONS.get(field, field).replace("_", "-")


def _shown(option: str, value: Any) -> str:
    if option == "topology":
        return "another file" if value else "none"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return "none" if value == "" else str(value)
