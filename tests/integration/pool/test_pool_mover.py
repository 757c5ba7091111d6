"""Two hosts' movers: what the destination lacks is offered, taken, and what it has is not sent."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import wait_until
from pool_service import NAMESPACE, PoolProcess, load, page_hashes, store

from prfaas.blocks.block_layout import KEY_BYTES, KV
from prfaas.errors import ProtocolError
from prfaas_pool.client import PoolClient
from prfaas_pool.mover import Mover, Taken, new_room
from prfaas_pool.space import Space
from prfaas_transport import TransportConfig

SIZES = {KV: 900, "mamba": 9000}
SPACE = Space(NAMESPACE.model, NAMESPACE.layout, 4, SIZES, {"mamba": 1})
HASHES = page_hashes(list(range(80)))
CHAIN = NAMESPACE.keys(HASHES)
PAGES = len(HASHES)
CONFIG = TransportConfig(warm_bytes=0, lanes=2, io_threads=1, liveness_s=1.0)


class Host:
    """A pool, an engine that said what it stores, and the mover."""

    def __init__(self, directory: Path, name: str) -> None:
        (directory / name).mkdir()
        self.service = PoolProcess(directory / name, num_bytes=64 * 4096)
        self.engine = PoolClient(self.service.socket)
        self.engine.describe(SPACE)
        self.mover = Mover(str(self.service.socket), node_id=name, host="127.0.0.1", config=CONFIG)

    def store(self, pages: int, *, state: bool = True) -> None:
        """Store a prefix and, unless told otherwise, the state at its end."""
        chain = CHAIN[: pages * KEY_BYTES]
        if state:
            store(self.engine, chain, pages - 1, group="mamba", size=SIZES["mamba"])
        assert store(self.engine, chain, 0, group=KV, size=SIZES[KV]) == pages

    def close(self) -> None:
        self.mover.close()
        self.engine.close()
        self.service.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    found = Host(tmp_path, "a"), Host(tmp_path, "b")
    yield found
    for host in found:
        host.close()


def move(source: Host, destination: Host) -> Taken | None:
    """Move the chain; None where the source has no more."""
    (space,) = destination.mover.spaces(SPACE.model)
    lack = destination.mover.lacks(space, HASHES)
    found = source.mover.offer(
        new_room(),
        space.model,
        space.layout,
        lack.chain,
        have=(lack.kv_pages, lack.usable_pages),
    )
    return None if found is None else destination.mover.take(lack, *found)


def test_only_the_increment_moves_and_then_nothing(hosts: tuple[Host, Host]) -> None:
    source, destination = hosts
    source.store(PAGES)
    destination.store(12, state=False)
    expected = (PAGES - 12) * SIZES[KV] + SIZES["mamba"]
    assert move(source, destination) == Taken(PAGES, expected)
    assert load(destination.engine, CHAIN, 0, group=KV, size=SIZES[KV]) == PAGES
    assert load(destination.engine, CHAIN, PAGES - 1, group="mamba", size=9000) == 1
    assert move(source, destination) is None
    assert move(destination, source) is None


def test_a_state_moves_alone_where_its_pages_are_there(hosts: tuple[Host, Host]) -> None:
    source, destination = hosts
    source.store(8)
    destination.store(PAGES)
    (space,) = destination.mover.spaces(SPACE.model)
    assert destination.mover.lacks(space, HASHES[:8]).usable_pages == 0
    lack = destination.mover.lacks(space, HASHES[:8])
    have = (lack.kv_pages, lack.usable_pages)
    found = source.mover.offer(7, space.model, space.layout, lack.chain, have=have)
    assert found is not None
    assert destination.mover.take(lack, *found) == Taken(8, SIZES["mamba"])
    assert destination.mover.lacks(space, HASHES[:8]).usable_pages == 8


def test_what_nobody_described_is_not_moved_and_a_new_service_hears_it_again(
    hosts: tuple[Host, Host],
) -> None:
    source, destination = hosts
    source.store(PAGES)
    source.service.kill()
    source.service.start()
    assert source.mover.spaces(SPACE.model) == []

    def is_known_again() -> bool:
        source.engine.match(CHAIN, {})  # whatever an engine asks: it connects anew, a second later
        return source.mover.spaces(SPACE.model) == [SPACE]

    wait_until(is_known_again, timeout_s=20, what="the space is described anew")
    taken = move(source, destination)
    assert taken is not None
    assert taken.pages == PAGES


def test_a_source_that_ends_fails_the_move(hosts: tuple[Host, Host]) -> None:
    source, destination = hosts
    source.store(PAGES)
    (space,) = destination.mover.spaces(SPACE.model)
    lack = destination.mover.lacks(space, HASHES)
    found = source.mover.offer(5, space.model, space.layout, lack.chain, have=(0, 0))
    assert found is not None
    source.mover.close()
    assert destination.mover.take(lack, *found) == Taken(0, 0)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {"model": "m", "layout": "l", "page_tokens": 0, "item_bytes": {}, "trailing": {}},
        {"model": "m", "layout": 1, "page_tokens": 1, "item_bytes": {}, "trailing": {}},
        {"model": "m", "layout": "", "page_tokens": 1, "item_bytes": {"kv": -1}, "trailing": {}},
        {"model": "m", "layout": "", "page_tokens": 1, "item_bytes": {}, "trailing": [1]},
    ],
)
def test_a_description_that_is_none_is_refused(raw: object) -> None:
    with pytest.raises(ProtocolError):
        Space.from_json(raw)
