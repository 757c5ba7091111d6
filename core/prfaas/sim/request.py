"""A request on its way through the simulated deployment."""

from typing import TYPE_CHECKING

from prfaas.routing import Decision
from prfaas.sim.link import Flow
from prfaas.workload.chain import Chain

if TYPE_CHECKING:
    from prfaas.sim.colocated import ColocatedServer
    from prfaas.sim.decode import DecodeServer
    from prfaas.sim.fleet import Region
    from prfaas.sim.prefill import PrefillServer

MODEL = "sim"


class SimRequest:
    """One request; `prfaas.routing` reads it as a `Routable`.

    `attempt` grows with every retry, so that what belongs to an earlier one is known as void.
    `uncached_tokens` is what the prefill node computes, `flow` its transfer over a link.
    `reserved_at` is the prefill server that counts it and does not have it yet, `expected_at` the
    decode server that does: what to give back when the attempt fails. `region` prefills it, from
    when it has a decision.
    """

    __slots__ = (
        "attempt", "avoid", "chain", "decision", "decoded_tokens", "expected_at", "flow", "index",
        "output_tokens", "prompt_tokens", "region", "reserved_at", "total_tokens",
        "uncached_tokens", "work_tokens",
    )  # fmt: skip
    model_id = MODEL
    residency = ""
    region: "Region"

    def __init__(self, index: int, prompt_tokens: int, output_tokens: int, chain: Chain) -> None:
        self.index = index
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.total_tokens = prompt_tokens + output_tokens
        self.chain = chain
        self.attempt = 1
        self.avoid: frozenset[str] = frozenset()
        self.decision: Decision | None = None
        self.flow: Flow | None = None
        self.reserved_at: PrefillServer | ColocatedServer | None = None
        self.expected_at: DecodeServer | ColocatedServer | None = None
        self.uncached_tokens = prompt_tokens
        self.work_tokens = 0  # as counted in its prefill server's backlog
        self.decoded_tokens = 0  # before the decode node it was at died
