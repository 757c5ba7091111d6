"""Records that nodes and gateways exchange through etcd, with their JSON form."""

import json
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from prfaas.errors import ConfigError


class Role(StrEnum):
    """What a node does."""

    GATEWAY = "gateway"
    PREFILL = "prefill"
    DECODE = "decode"


class JsonRecord:
    """JSON text of a frozen dataclass; unknown keys are ignored so that versions can mix."""

    def to_json(self) -> str:
        """Return the record as one line of JSON with sorted keys."""
        return json.dumps(asdict(self), sort_keys=True)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse a record.

        Raises:
            ConfigError: not JSON, not an object, or a required key is missing.
        """
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{cls.__name__}: not JSON: {error}") from None
        if not isinstance(raw, dict):
            raise ConfigError(f"{cls.__name__}: not a JSON object")
        return cls._from_dict(raw)

    @classmethod
    def _from_dict(cls, raw: dict[str, Any]) -> Self:
        known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        try:
            return cls(**{key: value for key, value in raw.items() if key in known})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{cls.__name__}: {error}") from None


@dataclass(frozen=True, slots=True)
class NodeRecord(JsonRecord):
    """One node of a deployment, present in etcd while its lease lives.

    `session` is new for every start of the engine process; `url` is the engine's HTTP base;
    `context_tokens` the longest prompt plus output the engine accepts. A `stateful` model has
    states beside paged KV: its prefixes are reusable only at prompt ends and, where
    `checkpoint_tokens` > 0, at multiples of that (the engine's chunked prefill size). A `draining`
    node finishes what it has and shall get nothing new. `agent_url` is the HTTP base of its agent,
    for who watches the node; empty where it has none. `layout` is the digest of what one of its
    `tp_size` workers transfers, empty if unknown: only like can be sent to like. `residency` are
    the labels of where the node stands: requests with such a label stay at nodes that have it.
    With `role_switch` its engine can take the other role. `pool` names the prefix pool of its host,
    the same for all nodes that share it, and `pool_url` is the HTTP base of who moves prefixes
    between it and others; both are empty where there is none. `cache_feed`: its agent tells of
    every change of its prefix cache.
    """

    name: str
    role: Role
    region: str
    url: str
    session: str
    model_id: str = ""
    model_path: str = ""
    bootstrap_host: str = ""
    bootstrap_port: int = 0
    context_tokens: int = 0
    page_tokens: int = 1
    checkpoint_tokens: int = 0
    stateful: bool = False
    max_running_requests: int = 0
    started_at_s: float = 0.0
    draining: bool = False
    agent_url: str = ""
    layout: str = ""
    tp_size: int = 1
    residency: tuple[str, ...] = ()
    role_switch: bool = False
    pool: str = ""
    pool_url: str = ""
    cache_feed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", Role(self.role))
        object.__setattr__(self, "residency", tuple(self.residency))


@dataclass(frozen=True, slots=True)
class RoleWish(JsonRecord):
    """The role that the plan wants of a node; `at_s` is the Unix time since when."""

    role: Role
    at_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", Role(self.role))


@dataclass(frozen=True, slots=True)
class RoutingPolicy(JsonRecord):
    """What operators set and all gateways follow. `threshold_tokens` is the paper's t.

    `tenants`: the label of the nodes that a tenant's requests must not leave, by tenant.
    """

    threshold_tokens: int = 512
    version: int = 1
    tenants: dict[str, str] = field(default_factory=dict)
