"""One prefill chunk of one request, to be submitted layer by layer."""

import threading

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import TransferError
from prfaas.transfer.reasons import Reason
from prfaas_plugin.geometry import KV
from prfaas_plugin.layerwise.entry_map import LayerKey, Part, Parts
from prfaas_plugin.layerwise.sends import Sends

Indices = NDArray[np.int64]


class SendPlan:
    """Positions `start .. stop` of a room's grant, and the states if the chunk is the last.

    Every part is submitted exactly once, by whichever thread asks first: the announcer as layers
    are computed, or the scheduler with what is left. `items` are valid once a layer is written.
    """

    def __init__(self, room: int, *, start: int, items: dict[str, Indices], parts: Parts) -> None:
        self.room = room
        self.start = start
        self.stop = start + items[KV].size
        self.items = items
        self._lock = threading.Lock()
        self._left: dict[LayerKey, list[Part]] = {
            key: wanted
            for key, of_layer in parts.items()
            if (wanted := [part for part in of_layer if part.group in items])
        }

    @property
    def num_left(self) -> int:
        """Layers not submitted."""
        return len(self._left)

    def release(self, key: LayerKey, sends: Sends) -> bool:
        """Submit what one layer's event releases; False if that was done before or is nothing.

        Raises: TransferError; after `queue_full` the rest is still to be submitted, after any other
            the room is over.
        """
        with self._lock:
            parts = self._left.get(key)
            if parts is None:
                return False
            self._submit(parts, sends)
            self._left.pop(key, None)
            return True

    def complete(self, sends: Sends) -> int:
        """Submit all that is left, once everything is written; return how many layers that was.

        Raises: TransferError as `release` does.
        """
        with self._lock:
            num_left = len(self._left)
            for key in list(self._left):
                self._submit(self._left[key], sends)
                self._left.pop(key, None)
            return num_left

    def _submit(self, parts: list[Part], sends: Sends) -> None:
        try:
            while parts:
                group, entries = parts[-1]
                start = self.start if group == KV else 0
                items = self.items[group]
                sends.submit(self.room, group=group, start=start, items=items, entries=entries)
                parts.pop()
        except TransferError as error:
            if error.reason != Reason.QUEUE_FULL:
                self._left.clear()
            raise
