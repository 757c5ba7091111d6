"""What decides in a simulation; the paper's policy is the gateway's own code."""

from typing import TYPE_CHECKING, Protocol

from prfaas.routing import Decision, Refusal
from prfaas.sim.request import SimRequest

if TYPE_CHECKING:
    from prfaas.sim.world import World


class Policy(Protocol):
    """Routes requests, and may act from time to time.

    `models` says in a line what the policy stands for, `source` where it comes from. `period_s` is
    the time between two calls of `act`, 0 for none.
    """

    name: str
    models: str
    source: str
    period_s: float

    def start(self, world: "World") -> None:
        """Get to know the world; called once, before the first request."""

    def place(self, request: SimRequest, now_s: float) -> Decision | Refusal:
        """Choose the nodes of a request's first attempt."""

    def place_again(
        self, request: SimRequest, now_s: float, failed: Decision
    ) -> Decision | Refusal:
        """Choose the nodes of another attempt; `request.avoid` names nodes not to use."""

    def act(self, now_s: float) -> None:
        """Look at the world and change what routing does, or the nodes' roles."""
