"""On the leader: ask nodes for the roles that the plan wants, and stop asking when it is done."""

import logging
import time
from collections.abc import Mapping

from prfaas.plan_record import PlanRecord
from prfaas.planning.conversion import Conversion, next_conversions, wanted_role
from prfaas.records import NodeRecord, RoleWish
from prfaas_coord import Election, EtcdClient
from prfaas_coord.wishes import drop_wish, read_wishes, write_wish
from prfaas_gateway.fleet import Fleet

logger = logging.getLogger(__name__)

#: A node that has not followed for so long is not asked any more; another one may be.
WISH_LASTS_S = 900.0


class Conversions:
    """Moves the roles to the plan's, one node per region at a time; `waiting` are those asked."""

    def __init__(
        self, etcd: EtcdClient, election: Election, fleet: Fleet, *, deployment: str
    ) -> None:
        self.waiting: dict[str, str] = {}
        self._etcd = etcd
        self._election = election
        self._fleet = fleet
        self._deployment = deployment

    async def look(self, plan: PlanRecord | None) -> None:
        """Take one step. Raises: EtcdError."""
        wishes = await read_wishes(self._etcd, self._deployment)
        nodes = self._fleet.view.nodes
        wanted = {c.node.region: c for c in self._next(plan)}
        busy = set()
        self.waiting = {}
        for name, wish in wishes.items():
            if self._is_over(wish, nodes.get(name), plan):
                await drop_wish(self._etcd, self._deployment, name)
            elif wish is not None:
                self.waiting[name] = str(wish.role)
                busy.add(nodes[name].region)
        for region, conversion in wanted.items():
            if region in busy:
                continue
            name, role = conversion.node.name, conversion.role
            guards: Mapping[str, int] = self._election.guards
            if await write_wish(self._etcd, self._deployment, name, role, guards=guards):
                self.waiting[name] = str(role)
                logger.info("%s is to become %s", name, role)

    def _next(self, plan: PlanRecord | None) -> list[Conversion]:
        return next_conversions(plan.roles, self._fleet.loads()) if plan else []

    def _is_over(
        self, wish: RoleWish | None, node: NodeRecord | None, plan: PlanRecord | None
    ) -> bool:
        """Return whether a wish has come true, cannot, is none of the plan's any more, or old."""
        if wish is None or node is None or time.time() - wish.at_s > WISH_LASTS_S:
            return True
        if node.role is wish.role:
            return not node.draining
        counts = plan.roles.get(node.region) if plan else None
        members = (other for other in self._fleet.engines() if other.region == node.region)
        return counts is None or wanted_role(counts, members) is not wish.role
