"""What layer-wise sending needs of a transport node."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Sends(Protocol):
    """Part of `prfaas_transport.SendNode`, whose docstrings hold here; any thread may call it."""

    def submit(
        self,
        room: int,
        *,
        group: str,
        start: int,
        items: Indices,
        entries: range | None = None,
        ready: int | None = None,
    ) -> None:
        """Queue `items[i]` for position `start + i` of the grant. Raises: TransferError."""
        ...

    def mark_ready(self, room: int, token: int) -> None:
        """Say that what was submitted with this token may be read."""
        ...

    def finish(self, room: int, totals: Mapping[str, int]) -> None:
        """Say that no more items come. Raises: TransferError."""
        ...

    def abort(self, room: int, reason: str, detail: str = "") -> None:
        """Fail the room; on return its memory is no longer read."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return counters, `chunks_acked_total` among them."""
        ...
