"""Which directions of which link a person means, and what they are like now."""

from itertools import permutations
from typing import TYPE_CHECKING, Any

from prfaas.errors import ConfigError

if TYPE_CHECKING:
    from prfaas_netem import Topology


def chosen_ways(link: str, topology: "Topology") -> list[tuple[str, str]]:
    """Return both ways of a link written as `a-b`, the one from the first region first.

    Raises:
        ConfigError: no such link; the links there are.
    """
    for source, target in permutations(topology.regions, 2):
        if link == f"{source}-{target}":
            return [(source, target), (target, source)]
    allowed = ", ".join(f"{a}-{b}" for a, b in permutations(topology.regions, 2))
    raise ConfigError(f"link {link!r}: allowed: {allowed}")


def topology_now(topology: "Topology", document: dict[str, Any]) -> "Topology":
    """Return the topology with all ways as the emulator's `show` says they are now."""
    from prfaas_netem import LinkSpec, Way

    return topology.with_ways(
        *(
            Way(way["from"], way["to"], LinkSpec.from_json(way["spec"]))
            for way in document["directions"]
        )
    )
