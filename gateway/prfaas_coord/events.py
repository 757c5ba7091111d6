"""What etcd holds and what a watch tells."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as etcd holds it; `revision` is that of its last write."""

    key: str
    value: bytes
    revision: int
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys below a prefix at one revision."""

    revision: int
    items: Mapping[str, KeyValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Put:
    """A key was written."""

    item: KeyValue


@dataclass(frozen=True, slots=True)
class Delete:
    """A key was deleted, or its lease ended."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Heard:
    """Nothing changed, and etcd is there: it answered at `revision`."""

    revision: int


@dataclass(frozen=True, slots=True)
class Lost:
    """etcd cannot be reached; what was known stays, unconfirmed, until the next snapshot."""

    detail: str


WatchEvent = Snapshot | Put | Delete | Heard | Lost
