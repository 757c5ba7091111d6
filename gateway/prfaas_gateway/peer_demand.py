"""What the other gateways of a region see of the demand: asked for, never through etcd."""

import asyncio
import logging

import aiohttp

from prfaas.errors import ConfigError
from prfaas.planning.demand_book import DemandSeen, merged
from prfaas.records import NodeRecord, Role
from prfaas_gateway.fleet import Fleet

logger = logging.getLogger(__name__)

DEMAND_PATH = "/admin/v1/demand"
SESSION_HEADER = "x-prfaas-session"
"""The session of the gateway that is asked, as etcd has it: so it knows a gateway of its own."""
_TIMEOUT_S = 1.0
_MAX_BYTES = 1 << 20


class PeerDemand:
    """Asks gateways over HTTP; one that does not answer is left out."""

    def __init__(self, session: aiohttp.ClientSession, fleet: Fleet, name: str) -> None:
        self._session = session
        self._fleet = fleet
        self._name = name

    async def demand(self, own: DemandSeen | None) -> DemandSeen | None:
        """Return what all gateways of the region see together; None if they saw nothing."""
        others = [
            node
            for node in self._fleet.view.nodes.values()
            if node.role is Role.GATEWAY
            and node.region == self._fleet.region
            and node.name != self._name
        ]
        found = await asyncio.gather(*(self._ask(node) for node in others))
        return merged([seen for seen in (own, *found) if seen is not None])

    async def _ask(self, node: NodeRecord) -> DemandSeen | None:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with self._session.get(
                node.url + DEMAND_PATH,
                timeout=timeout,
                allow_redirects=False,
                headers={SESSION_HEADER: node.session},
                # A public certificate names the public name, not this address.
                ssl=False,
            ) as response:
                length = response.content_length
                if response.status != 200 or length is None or length > _MAX_BYTES:
                    raise ConfigError(f"HTTP status {response.status}, {length} bytes")
                raw = await response.json()
            demand = raw.get("demand") if isinstance(raw, dict) else None
            return None if demand is None else DemandSeen.from_json(demand)
        except (aiohttp.ClientError, OSError, ValueError, RecursionError, ConfigError) as error:
            logger.info("demand of %s is left out: %s", node.name, error)
            return None
