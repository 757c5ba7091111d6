"""What is simulated: the deployment, the requests, and what goes wrong when."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.throughput import PdCluster, PrefillCluster
from prfaas.workload.chain import Chain

#: A request of more would run for days of virtual time.
MOST_TOKENS = 20_000_000
#: More nodes than any deployment has.
MOST_NODES = 100_000


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """Prefix caches. `tokens_per_node` is each node's room (0: no cache).

    With `shared` the nodes of a region have one cache together, as large as all their rooms, of
    which a prefill node that dies takes its part. See `NodeCache` for the other two.
    """

    tokens_per_node: float = 0
    shared: bool = True
    stateful: bool = True
    checkpoint_tokens: int = 0


class FaultKind(StrEnum):
    """What can go wrong."""

    KILL = "kill"
    """A node dies at `at_s` and is back, empty, at `until_s`."""
    SLOW = "slow"
    """A node takes `value` times longer."""
    LINK_RATE = "link_rate"
    """A region's link has `value` times its rate; 0 is an outage."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `target` is a node's name, or a PrfaaS cluster's for its link."""

    at_s: float
    until_s: float
    kind: FaultKind
    target: str
    value: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.at_s < self.until_s:
            raise ConfigError(f"fault: at_s = {self.at_s}: allowed: 0 or more, before until_s")
        if not (math.isfinite(self.value) and self.value >= 0):
            raise ConfigError(f"fault: value = {self.value}: allowed: 0 or more")
        if self.kind is FaultKind.SLOW and not 1e-3 <= self.value <= 1e6:
            raise ConfigError(f"fault: value = {self.value}: allowed: 0.001 to 1e6 for kind slow")


@dataclass(frozen=True, slots=True)
class Deployment:
    """The hardware and how its engines work.

    Nodes are named `<cluster>-prefill-<i>` and `<cluster>-decode-<i>`. `rtt_s` is the links' round
    trip; `layers` is over how many layers a prefill's KV cache becomes ready (1: all at its end);
    `local_bytes_per_s` is the rate of the network inside the PD cluster. `batch_tokens` see
    `PrefillServer`; with `central_queue` the prefill nodes of a region share a queue. With
    `chunk_tokens` the PD cluster's prefill nodes also decode, by chunked prefill. A converted
    node is away for `conversion_s`. An offload on a dead link is given up after
    `offload_timeout_s`.
    """

    pd: PdCluster
    remotes: tuple[PrefillCluster, ...] = ()
    tpot_s: float = 0.025
    rtt_s: float = 0.020
    layers: int = 32
    local_bytes_per_s: float = 50e9
    batch_tokens: int = 0
    central_queue: bool = False
    cache: CacheSpec = field(default_factory=CacheSpec)
    chunk_tokens: int = 0
    conversion_s: float = 30.0
    offload_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("tpot_s", "local_bytes_per_s", "offload_timeout_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} = {value}: allowed: a positive number")
        for name in ("rtt_s", "conversion_s", "batch_tokens"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} = {value}: allowed: 0 or more")
        if not 1 <= self.layers <= 10_000:
            raise ConfigError(f"layers = {self.layers}: allowed: 1 to 10,000")
        nodes = self.pd.prefill + self.pd.decode + sum(r.instances for r in self.remotes)
        if nodes > MOST_NODES:
            raise ConfigError(f"instances: {nodes:,} in all: allowed: at most {MOST_NODES:,}")
        names = [self.pd.name, *(remote.name for remote in self.remotes)]
        if len(set(names)) < len(names):
            raise ConfigError(f"clusters: every name once; got {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests in order of arrival; arrays of shape `(num_requests,)`.

    `chains` says which prefixes they share (see `prfaas.workload.chain`); empty: none.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    chains: tuple[Chain, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        if not count:
            raise ConfigError("workload: no requests")
        if len(self.prompt_tokens) != count or len(self.output_tokens) != count:
            raise ConfigError("workload: arrival_s, prompt_tokens, output_tokens differ in length")
        if self.chains and len(self.chains) != count:
            raise ConfigError("workload: chains: one per request, or none at all")
        if not np.all(np.isfinite(self.arrival_s)) or np.any(np.diff(self.arrival_s) < 0):
            raise ConfigError("workload: arrival_s must be finite and not decrease")
        if self.arrival_s[0] < 0:
            raise ConfigError("workload: arrival_s: the first is before 0")
        for name in ("prompt_tokens", "output_tokens"):
            if np.any(getattr(self, name) < 1):
                raise ConfigError(f"workload: {name}: every request needs 1 at least")
            if np.any(getattr(self, name) > MOST_TOKENS):
                raise ConfigError(f"workload: {name}: allowed: at most {MOST_TOKENS:,} a request")
