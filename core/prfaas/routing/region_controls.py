"""The links from all other regions, each under its control."""

from collections.abc import Mapping

from prfaas.routing.link_control import LinkControl, LinkSignal
from prfaas.routing.region_link import RegionLink
from prfaas.routing.snapshot import LinkRule

#: Regions that are away are remembered: one that comes back after an outage starts slowly.
_MAX_REGIONS = 64
_DOWN = LinkSignal(utilisation=0.0, backlog_s=0.0, up=False)


class RegionControls:
    """One `LinkControl` per remote region; `on_links` is called once per period.

    An outage takes the measurements with it: when all agents of a region fall silent, its link
    counts as down. Views that are merely old change nothing. While no path is known, as before
    the first transfer, the link is open.
    """

    def __init__(self) -> None:
        self._controls: dict[str, LinkControl] = {}

    @property
    def rules(self) -> Mapping[str, LinkRule]:
        """The rules by region, after the last period."""
        return {region: control.rule for region, control in self._controls.items()}

    def on_links(self, links: Mapping[str, RegionLink], *, is_late: bool = False) -> None:
        """Take one period's links. One that is late proves no silence: who should hear, slept."""
        for region, link in links.items():
            control = self._controls.pop(region, None) or LinkControl()
            self._controls[region] = control  # the one heard of last stands last
            if link.is_silent:
                if not is_late:
                    control.on_signal(_DOWN)
            elif link.is_current or link.signal is None:
                control.on_signal(link.signal)
        for region in list(self._controls)[: max(len(self._controls) - _MAX_REGIONS, 0)]:
            del self._controls[region]
