"""Many nodes' views of one link, put together."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from prfaas.routing.link_control import LinkSignal


@dataclass(frozen=True, kw_only=True, slots=True)
class PathSignal:
    """One node's view of its path to one peer, over the link between their regions."""

    signal: LinkSignal
    delivery_bytes_per_s: float
    available_bytes_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionLink:
    """The link from a region's prefill nodes to us, as they see it.

    `signal` is None while no path is known. `delivery_bytes_per_s` is summed over the paths,
    `available_bytes_per_s` the most that one of them has seen the link carry. `age_s` is that of
    the oldest view; `is_stale` says that a node's is too old to go by, or that there is none;
    `is_current` that one is not. `is_silent`: the region's agents, who spoke, all fell silent.
    """

    signal: LinkSignal | None = None
    num_paths: int = 0
    delivery_bytes_per_s: float = 0.0
    available_bytes_per_s: float = 0.0
    age_s: float | None = None
    is_stale: bool = True
    is_current: bool = False
    is_silent: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a value of JSON types."""
        signal = None if self.signal is None else self.signal._asdict()
        return asdict(self) | {"signal": signal}


def merge(
    paths: Iterable[PathSignal],
    *,
    age_s: float | None = None,
    is_stale: bool = False,
    is_current: bool = True,
    is_silent: bool = False,
) -> RegionLink:
    """Return what the paths say together: the worst of each, and up while any is.

    All paths share the link, so the fullest is nearest to the truth; but a peer that is gone does
    not make the link be down.
    """
    known = list(paths)
    if not known:
        return RegionLink(
            age_s=age_s, is_stale=is_stale, is_current=is_current, is_silent=is_silent
        )
    up = [path.signal for path in known if path.signal.up]
    heard = up or [path.signal for path in known]
    return RegionLink(
        signal=LinkSignal(
            utilisation=max(signal.utilisation for signal in heard),
            backlog_s=max(signal.backlog_s for signal in heard),
            loss=max(signal.loss for signal in heard),
            up=bool(up),
        ),
        num_paths=len(known),
        delivery_bytes_per_s=sum(path.delivery_bytes_per_s for path in known),
        available_bytes_per_s=max(path.available_bytes_per_s for path in known),
        age_s=age_s,
        is_stale=is_stale,
        is_current=is_current,
        is_silent=is_silent,
    )
