"""What the nodes' agents last said of their paths, and what follows for the regions' links."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prfaas.records import NodeRecord, Role
from prfaas.routing.region_link import PathSignal, RegionLink, merge
from prfaas.transfer.node_signals import NodeSignals
from prfaas.transfer.signals import PeerSignals

STALE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Entry:
    signals: NodeSignals
    heard_s: float


class SignalBook:
    """The latest signals by node name. Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def note(self, node: str, signals: NodeSignals, now_s: float) -> None:
        """Take what a node's agent said just now."""
        self._entries[node] = _Entry(signals, now_s)

    def retain(self, nodes: Iterable[str]) -> None:
        """Forget all other nodes."""
        kept = frozenset(nodes)
        self._entries = {name: entry for name, entry in self._entries.items() if name in kept}

    def age_s(self, node: str, now_s: float) -> float | None:
        """Return how old a node's signals are, None if they are not known."""
        entry = self._entries.get(node)
        if entry is None or entry.signals.age_s is None:
            return None
        return entry.signals.age_s + now_s - entry.heard_s

    def links(
        self, nodes: Mapping[str, NodeRecord], *, region: str, now_s: float
    ) -> dict[str, RegionLink]:
        """Return the links by which other regions' prefill nodes reach our decode nodes."""
        found: dict[str, RegionLink] = {}
        for remote in sorted({n.region for n in nodes.values() if n.role is Role.PREFILL}):
            if remote != region:
                found[remote] = self._link(nodes, remote=remote, region=region, now_s=now_s)
        return found

    def path_signals(
        self, nodes: Mapping[str, NodeRecord], *, remote: str, region: str
    ) -> list[PeerSignals]:
        """Return the paths that are up of the link from a remote region, as last heard."""
        return [
            signals
            for name, node in nodes.items()
            if node.region == remote and node.role is Role.PREFILL
            for signals in self._peers(name, nodes, region)
            if signals.is_up
        ]

    def _link(
        self, nodes: Mapping[str, NodeRecord], *, remote: str, region: str, now_s: float
    ) -> RegionLink:
        senders = [
            name
            for name, node in nodes.items()
            if node.region == remote and node.role is Role.PREFILL
        ]
        ages_s = {name: self.age_s(name, now_s) for name in senders}
        known_s = {name: age_s for name, age_s in ages_s.items() if age_s is not None}
        fresh = [name for name, age_s in known_s.items() if age_s < STALE_S]
        # What is old says something only where nothing is new.
        heard = fresh or senders
        paths = (path for name in heard for path in self._paths(name, nodes, region))
        return merge(
            paths,
            age_s=max(known_s.values(), default=None),
            is_stale=len(fresh) < len(senders),
            is_current=bool(fresh),
            is_silent=self._are_silent(senders, now_s),
        )

    def _are_silent(self, nodes: Iterable[str], now_s: float) -> bool:
        """Return whether some of the nodes' agents once spoke, and none does."""
        spoke = [self._entries[name].heard_s for name in nodes if name in self._entries]
        return bool(spoke) and now_s - max(spoke) >= STALE_S

    def _paths(
        self, sender: str, nodes: Mapping[str, NodeRecord], region: str
    ) -> Iterable[PathSignal]:
        for signals in self._peers(sender, nodes, region):
            yield PathSignal(
                signal=signals.link_signal(),
                delivery_bytes_per_s=signals.delivery_bytes_per_s,
                available_bytes_per_s=signals.available_bytes_per_s,
            )

    def _peers(
        self, sender: str, nodes: Mapping[str, NodeRecord], region: str
    ) -> Iterable[PeerSignals]:
        entry = self._entries.get(sender)
        for peer, signals in entry.signals.peers.items() if entry else ():
            receiver = nodes.get(peer.partition("/")[0])
            is_ours = receiver is not None and receiver.region == region
            if receiver is None or not is_ours or receiver.role is not Role.DECODE:
                continue
            if signals.is_up or not self._is_engine_gone(receiver.name):
                yield signals

    def _is_engine_gone(self, node: str) -> bool:
        """Return whether the node's own agent says so: then its paths do not tell of the link."""
        entry = self._entries.get(node)
        return entry is not None and entry.signals.age_s is None
