"""A prefix moves from one region's pool to another's over real lanes."""

import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pool_service import NAMESPACE, PoolProcess, load, page_hashes, right_item, store

from prfaas.blocks.block_layout import KEY_BYTES, KV
from prfaas.errors import ProtocolError
from prfaas_pool.client import PoolClient
from prfaas_pool.move import MoveDestination, MoveSource, Offer
from prfaas_pool.slots import SlotMemory, moving_layout
from prfaas_transport import ReceiveNode, SendNode, TransportConfig

SIZES = {KV: 900, "mamba": 9000}
TRAILING = {"mamba": 1}
CHAIN = NAMESPACE.keys(page_hashes(list(range(80))))
PAGES = len(CHAIN) // KEY_BYTES


class Regions:
    """Two pools and the lanes between them."""

    def __init__(self, directory: Path) -> None:
        self.services, self.clients = [], []
        for name in ("a", "b"):
            (directory / name).mkdir()
            self.services.append(PoolProcess(directory / name, num_bytes=64 * 4096))
            self.clients.append(PoolClient(self.services[-1].socket))
        layout = moving_layout(SIZES)
        self.outcomes: queue.Queue[tuple[int, int]] = queue.Queue()
        memories = [SlotMemory(layout), SlotMemory(layout)]
        self.source = MoveSource(self.clients[0], memories[0])
        self.destination = MoveDestination(
            self.clients[1], memories[1], on_outcome=lambda *outcome: self.outcomes.put(outcome)
        )
        config = TransportConfig(warm_bytes=0, lanes=2, io_threads=1, liveness_s=0.5)
        self.source.node = SendNode(
            layout=layout,
            memory=memories[0],
            node_id="a",
            host="127.0.0.1",
            config=config,
            on_event=self.source.on_event,
        )
        self.destination.node = ReceiveNode(
            layout=layout,
            memory=memories[1],
            node_id="b",
            source_host="127.0.0.1",
            config=config,
            on_event=self.destination.on_event,
        )

    def move(self, room: int, *, have_pages: int = 0) -> int:
        """Move the chain and return how many pages of it the destination has then."""
        made = self.source.offer(room, CHAIN, have_pages=have_pages, trailing=TRAILING)
        assert made is not None
        offer = Offer.from_json(made.to_json())
        assert self.destination.accept(offer, CHAIN, address=self.source.node.address)
        concluded, pages = self.outcomes.get(timeout=15)
        assert concluded == room
        return pages

    def wait_idle(self) -> None:
        """Wait until neither pool is held by anybody."""
        deadline = time.monotonic() + 10
        while any(client.stats()["holds"] for client in self.clients):
            assert time.monotonic() < deadline, [client.stats() for client in self.clients]
            time.sleep(0.02)

    def close(self) -> None:
        self.source.node.close()
        self.destination.node.close()
        self.source.close()
        self.destination.close()
        for client in self.clients:
            client.close()
        for service in self.services:
            service.close()


@pytest.fixture
def regions(tmp_path: Path) -> Iterator[Regions]:
    regions = Regions(tmp_path)
    store(regions.clients[0], CHAIN, PAGES - 1, group="mamba", size=SIZES["mamba"])
    assert store(regions.clients[0], CHAIN, 0, group=KV, size=SIZES[KV]) == PAGES
    yield regions
    regions.close()


def test_a_prefix_moves_with_its_state_and_only_what_is_missing(regions: Regions) -> None:
    there = regions.clients[1]
    assert store(there, CHAIN[: 12 * KEY_BYTES], 0, group=KV, size=SIZES[KV]) == 12
    assert regions.move(1, have_pages=there.match(CHAIN, {}).kv_pages) == PAGES
    assert there.match(CHAIN, TRAILING).usable == (PAGES,)
    assert load(there, CHAIN, 0, group=KV, size=SIZES[KV]) == PAGES
    assert load(there, CHAIN, PAGES - 1, group="mamba", size=SIZES["mamba"]) == 1
    sent = regions.source.node.stats()["payload_bytes_sent_total"]
    assert sent == (PAGES - 12) * SIZES[KV] + SIZES["mamba"]
    assert regions.source.offer(2, CHAIN, have_pages=PAGES, trailing=TRAILING) is None
    regions.wait_idle()
    assert there.stats()["transfer_blocks"] == 0


def test_a_damaged_item_is_found_on_arrival_and_nothing_is_stored(regions: Regions) -> None:
    offer = regions.source.offer(1, CHAIN, have_pages=0, trailing=TRAILING)
    assert offer is not None
    item = right_item(KV, CHAIN[7 * KEY_BYTES : 8 * KEY_BYTES], SIZES[KV]).tobytes()
    at = regions.services[0].arena.read_bytes().index(item)
    with regions.services[0].arena.open("r+b") as file:
        file.seek(at + 100)
        file.write(bytes([item[100] ^ 0x40]))
    regions.destination.accept(offer, CHAIN, address=regions.source.node.address)
    assert regions.outcomes.get(timeout=15) == (1, 0)
    regions.wait_idle()
    stats = regions.clients[1].stats()
    assert (stats["free_blocks"], stats["entries"]) == (64, 0)


def test_a_source_that_dies_leaves_no_blocks_behind(regions: Regions) -> None:
    offer = regions.source.offer(1, CHAIN, have_pages=0, trailing=TRAILING)
    assert offer is not None
    address = regions.source.node.address
    regions.source.node.close()
    assert regions.destination.accept(offer, CHAIN, address=address)
    assert regions.outcomes.get(timeout=15) == (1, 0)
    regions.source.withdraw(1)
    regions.wait_idle()
    assert regions.clients[1].stats()["free_blocks"] == 64


def test_an_offer_that_is_old_is_not_accepted(regions: Regions) -> None:
    offer = regions.source.offer(1, CHAIN, have_pages=0, trailing=TRAILING)
    assert offer is not None
    there = regions.clients[1]
    store(there, CHAIN[: 4 * KEY_BYTES], 0, group=KV, size=SIZES[KV])
    assert not regions.destination.accept(offer, CHAIN, address=regions.source.node.address)
    regions.source.withdraw(1)
    regions.wait_idle()


def test_moves_at_the_same_time_do_not_meet(regions: Regions) -> None:
    other = NAMESPACE.keys(page_hashes(list(range(500, 560))))
    store(regions.clients[0], other, len(other) // KEY_BYTES - 1, group="mamba", size=9000)
    store(regions.clients[0], other, 0, group=KV, size=SIZES[KV])
    offers = {
        room: regions.source.offer(room, chain, have_pages=0, trailing=TRAILING)
        for room, chain in ((1, CHAIN), (2, other))
    }
    threads = [
        threading.Thread(
            target=regions.destination.accept,
            args=(offers[room], chain),
            kwargs={"address": regions.source.node.address},
        )
        for room, chain in ((1, CHAIN), (2, other))
    ]
    for thread in threads:
        thread.start()
    assert {regions.outcomes.get(timeout=15)[0] for _ in threads} == {1, 2}
    for thread in threads:
        thread.join()
    for chain in (CHAIN, other):
        pages = len(chain) // KEY_BYTES
        assert load(regions.clients[1], chain, 0, group=KV, size=SIZES[KV]) == pages
    regions.wait_idle()


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {},
        {"room": 1, "pages": 2, "groups": [{"group": KV, "first": 1, "digests": "00" * 16}]},
        {"room": 1, "pages": 2, "groups": [{"group": KV, "first": 0, "digests": "zz"}]},
        {"room": 1, "pages": 2, "groups": [{"group": KV, "first": -1, "digests": "00" * 8}]},
    ],
)
def test_an_offer_that_is_none_is_refused(raw: object) -> None:
    with pytest.raises(ProtocolError):
        Offer.from_json(raw)


def test_views_are_the_arena_itself(regions: Regions) -> None:
    leased = regions.clients[0].lease(CHAIN, 3, group=KV, item_bytes=SIZES[KV])
    assert leased is not None
    joined = np.concatenate([np.frombuffer(view, np.uint8) for view in leased.places[0].views()])
    assert np.array_equal(joined, right_item(KV, CHAIN[3 * KEY_BYTES : 4 * KEY_BYTES], SIZES[KV]))
    regions.clients[0].release(leased.number)
