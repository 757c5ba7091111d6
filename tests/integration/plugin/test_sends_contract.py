"""The fake sends of the layer-wise tests and the real node agree; real bytes, layer by layer."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from layer_device import FakeSends, LateDevice
from waiting import until

from prfaas.errors import TransferError
from prfaas_plugin.layerwise.entry_map import Kind, LayerKey, Part
from prfaas_plugin.layerwise.readiness import Announcer, InOrder, Readiness
from prfaas_plugin.layerwise.send_plan import SendPlan
from prfaas_plugin.layerwise.sends import Sends
from prfaas_transport import (
    Entry,
    Group,
    Layout,
    Memory,
    ReceiveNode,
    RoomOpened,
    RoomReceived,
    SendNode,
    TransportConfig,
)

ITEM_BYTES, NUM_ITEMS, NUM_LAYERS = 4096, 64, 6
LAYOUT = Layout(
    (
        Group("kv", tuple(Entry(ITEM_BYTES, NUM_ITEMS) for _ in range(2 * NUM_LAYERS))),
        Group("aux", (Entry(64, 4),)),
    )
)
PARTS = {
    LayerKey(Kind.ATTENTION, layer): (
        Part("kv", range(layer, layer + 1)),
        Part("kv", range(NUM_LAYERS + layer, NUM_LAYERS + layer + 1)),
    )
    for layer in range(NUM_LAYERS)
}
ITEMS = np.arange(10, 30)


class Pair:
    """A sender and a receiver over memory of zeros."""

    def __init__(self) -> None:
        config = TransportConfig(lanes=2, warm_bytes=0)
        self.source, self.target = self._memory(), self._memory()
        self.events: list[Any] = []
        self.sends = SendNode(
            layout=LAYOUT,
            memory=Memory.from_arrays(LAYOUT, self.source),
            node_id="p",
            host="127.0.0.1",
            config=config,
            on_event=self.events.append,
        )
        self.receives = ReceiveNode(
            layout=LAYOUT,
            memory=Memory.from_arrays(LAYOUT, self.target),
            node_id="d",
            source_host="127.0.0.1",
            config=config,
            on_event=self.events.append,
        )

    @staticmethod
    def _memory() -> dict[str, list[np.ndarray]]:
        return {
            group.name: [np.zeros(e.item_bytes * e.num_items, np.uint8) for e in group.entries]
            for group in LAYOUT.groups
        }

    def open(self, room: int, grants: dict[str, int]) -> None:
        indices = {name: np.arange(count) for name, count in grants.items()}
        self.receives.open_room(room, address=self.sends.address, grants=indices)
        self.wait(RoomOpened)

    def wait(self, kind: type) -> None:
        until(lambda: any(isinstance(event, kind) for event in list(self.events)))

    def close(self) -> None:
        self.receives.close()
        self.sends.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


@pytest.fixture(params=["fake", "real"])
def opened(request: pytest.FixtureRequest, pair: Pair) -> Sends:
    """Sends with room 1 open for 20 pages and one row of metadata."""
    if request.param == "real":
        pair.open(1, {"kv": 20, "aux": 1})
        return pair.sends
    fake = FakeSends(LAYOUT)
    fake.open(1, {"kv": 20, "aux": 1})
    return fake


def refused(call: Callable[[], None]) -> str:
    with pytest.raises(TransferError) as caught:
        call()
    return str(caught.value.reason)


def submit_layers(sends: Sends, layers: range) -> None:
    plan = SendPlan(1, start=0, items={"kv": ITEMS}, parts=PARTS)
    for layer in layers:
        assert plan.release(LayerKey(Kind.ATTENTION, layer), sends)


def test_entries_are_submitted_apart_and_count_together(opened: Sends) -> None:
    submit_layers(opened, range(NUM_LAYERS))
    opened.submit(1, group="aux", start=0, items=np.array([2]))
    opened.finish(1, {"kv": 20, "aux": 1})
    assert refused(lambda: submit_layers(opened, range(1))) in {"closed", "room_concluded"}


def test_a_layer_that_is_missing_fails_the_room(opened: Sends) -> None:
    submit_layers(opened, range(1, NUM_LAYERS))
    opened.submit(1, group="aux", start=0, items=np.array([2]))
    assert refused(lambda: opened.finish(1, {"kv": 20, "aux": 1})) == "count_mismatch"
    assert refused(lambda: submit_layers(opened, range(1))) == "count_mismatch"


def test_what_no_room_has_is_refused(opened: Sends) -> None:
    submit = opened.submit
    assert refused(lambda: submit(9, group="kv", start=0, items=ITEMS)) == "unknown_room"
    assert refused(lambda: submit(1, group="kv", start=1, items=ITEMS)) == "count_mismatch"
    too_many = range(2 * NUM_LAYERS + 1)
    assert (
        refused(lambda: submit(1, group="kv", start=0, items=ITEMS, entries=too_many))
        == "bad_items"
    )


def test_an_aborted_room_takes_nothing_and_says_why(opened: Sends) -> None:
    opened.abort(1, "gone")
    assert refused(lambda: submit_layers(opened, range(1))) == "gone"
    opened.mark_ready(1, 5)
    opened.abort(1, "again")
    assert "chunks_acked_total" in opened.stats()


def send_layers(pair: Pair, device: LateDevice, readiness: Readiness) -> list[Exception]:
    """Compute layers late, announce each, and send the rest as the scheduler would."""
    failures: list[Exception] = []
    announcer = Announcer(failures.append)
    plan = SendPlan(1, start=0, items={"kv": ITEMS}, parts=PARTS)
    for layer in range(NUM_LAYERS):
        device.queue(lambda layer=layer: compute(pair, layer))
        key = LayerKey(Kind.ATTENTION, layer)
        announcer.announce(readiness.mark(), lambda key=key: plan.release(key, pair.sends))
    for layer in range(NUM_LAYERS):
        if not isinstance(readiness, LateDevice):
            wait_for_acks(pair, 2 * NUM_LAYERS)
        device.run(1)
        wait_for_acks(pair, 2 * (layer + 1))
    plan.complete(pair.sends)
    pair.sends.submit(1, group="aux", start=0, items=np.array([2]))
    pair.sends.finish(1, {"kv": 20, "aux": 1})
    announcer.close()
    return failures


def wait_for_acks(pair: Pair, num: int) -> None:
    until(lambda: pair.sends.stats()["chunks_acked_total"] >= num)


def compute(pair: Pair, layer: int) -> None:
    for entry in (layer, NUM_LAYERS + layer):
        pair.source["kv"][entry][:] = entry + 1


@pytest.mark.parametrize("is_ordered", [True, False])
def test_bytes_are_right_because_each_layer_waits_for_the_device(
    pair: Pair, is_ordered: bool
) -> None:
    """Each layer is acknowledged before the next is computed; without the order, all are zeros."""
    pair.open(1, {"kv": 20, "aux": 1})
    device = LateDevice()
    readiness: Readiness = device if is_ordered else InOrder()
    assert send_layers(pair, device, readiness) == []
    pair.wait(RoomReceived)
    arrived = [set(entry[: 20 * ITEM_BYTES].tolist()) for entry in pair.target["kv"]]
    computed = [{entry + 1} for entry in range(2 * NUM_LAYERS)]
    assert (arrived == computed) == is_ordered
