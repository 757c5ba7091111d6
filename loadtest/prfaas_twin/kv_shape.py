"""The KV cache of a prompt as items that lanes can move: S_kv(l), scaled, layer by layer."""

import hashlib
import json
from dataclasses import dataclass

from prfaas.errors import ConfigError
from prfaas.profile import Curve
from prfaas.transfer.layout import Entry, Group, Layout

KV = "kv"
AUX = "aux"
AUX_BYTES = 32

_LEAST_ITEM_BYTES, _MOST_ITEM_BYTES = 16, 4096
_SMALL_TOKENS = 1024
#: Items per layer of a prompt of `_SMALL_TOKENS`: rounding to whole items is then below 1 %.
_ITEMS_OF_SMALL = 64
MAX_LAYERS = 512


@dataclass(frozen=True, slots=True)
class KvShape:
    """How many items of how many bytes a prompt's cache has, in each of `layers` layers.

    What S_kv is for one token counts as the fixed state of the linear-attention layers (group
    `state.0.<fingerprint>`), what it grows by as KV cache (group `kv`). The fingerprint is of the
    curve, the scale and the layers, so that peers with other ones refuse each other.
    """

    kv_bytes: Curve
    bytes_factor: float
    layers: int
    item_bytes: int
    state_items: int
    state_group: str

    @classmethod
    def of(cls, kv_bytes: Curve, *, bytes_factor: float = 1.0, layers: int = 8) -> "KvShape":
        """Return the shape.

        Raises:
            ConfigError: layers is out of range.
        """
        if not 1 <= layers <= MAX_LAYERS:
            raise ConfigError(f"twin.layers = {layers}: allowed is 1 to {MAX_LAYERS}")
        layer_bytes = kv_bytes.at(_SMALL_TOKENS) / bytes_factor / layers
        item_bytes = _power_of_two(layer_bytes / _ITEMS_OF_SMALL)
        state_bytes = kv_bytes.at(1) / bytes_factor / layers
        text = json.dumps([kv_bytes.to_json(), bytes_factor, layers], sort_keys=True)
        return cls(
            kv_bytes=kv_bytes,
            bytes_factor=bytes_factor,
            layers=layers,
            item_bytes=item_bytes,
            state_items=max(1, round(state_bytes / item_bytes)),
            state_group=f"state.0.{hashlib.sha256(text.encode()).hexdigest()[:8]}",
        )

    def kv_items(self, tokens: int) -> int:
        """Return the items per layer that the first so many tokens have of group `kv`."""
        if tokens < 1:
            return 0
        size_bytes = self.kv_bytes.at(tokens) / self.bytes_factor
        return max(1, round(size_bytes / (self.layers * self.item_bytes)) - self.state_items)

    def prompt_bytes(self, tokens: int) -> int:
        """Return what a prompt's cache takes in all layers, scaled."""
        return (self.kv_items(tokens) + self.state_items) * self.layers * self.item_bytes

    def layout(self, *, kv: int, state: int, aux: int) -> Layout:
        """Return a layout with so many items per group."""
        rows = ((KV, kv), (self.state_group, state))
        groups = [Group(name, (Entry(self.item_bytes, n),) * self.layers) for name, n in rows]
        return Layout((*groups, Group(AUX, (Entry(AUX_BYTES, aux),))))


def _power_of_two(size: float) -> int:
    """Return the power of two at or below, within the sizes that items may have."""
    item_bytes = _LEAST_ITEM_BYTES
    while item_bytes * 2 <= min(size, _MOST_ITEM_BYTES):
        item_bytes *= 2
    return item_bytes
