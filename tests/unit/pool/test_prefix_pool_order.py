"""What is evicted first, what never, and how large it gets."""

import tracemalloc

import pytest
from prefix_pool_model import chain_of

from prfaas.blocks.block_layout import KV, ItemLayout
from prfaas.blocks.free_list import Category, FreeList
from prfaas.blocks.prefix_pool import PrefixPool

PROMPT = tuple(range(6))


def make(num_blocks: int = 8, **quotas: int) -> PrefixPool:
    found = {Category[name.upper()]: count for name, count in quotas.items()}
    return PrefixPool(num_blocks, 512, found)


def store(pool: PrefixPool, prompt: tuple[int, ...], *groups: str) -> int:
    """Store a prompt in entries of a block each, a page each; return how many were stored."""
    stored = 0
    for group in groups or (KV,):
        first = len(prompt) - 1 if group != KV else 0
        number, _ = pool.reserve(
            chain_of(prompt), first, group=group, item_bytes=300, owner=1, expires_s=9.0
        )
        done = pool.commit(number, owner=1, expires_s=9.0) if number else None
        stored += len(done.stored) if done else 0
    return stored


def kv_pages(pool: PrefixPool, prompt: tuple[int, ...]) -> int:
    """Look without counting as a use."""
    return pool._tree.walk(chain_of(prompt)).pages


def test_the_tail_of_a_chain_goes_before_its_head() -> None:
    pool = make(6)
    store(pool, PROMPT)
    store(pool, (90, 91))
    assert (kv_pages(pool, PROMPT), kv_pages(pool, (90, 91))) == (4, 2)


def test_what_was_matched_last_stays_longest() -> None:
    pool = make(6)
    store(pool, (1, 2, 3))
    store(pool, (4, 5, 6))
    pool.match(chain_of((1, 2, 3)), {})
    store(pool, (7, 8, 9))
    assert (kv_pages(pool, (1, 2, 3)), kv_pages(pool, (4, 5, 6))) == (3, 0)


def test_a_state_goes_before_the_kv_it_hangs_on() -> None:
    pool = make(4)
    store(pool, (1, 2, 3), KV, "mamba")
    store(pool, (9,))
    assert pool.match(chain_of((1, 2, 3)), {}).kv_pages == 3
    assert pool.match(chain_of((1, 2, 3)), {"mamba": 1}).usable == ()


def test_kv_that_was_read_is_evicted_after_it_is_given_back_tail_first() -> None:
    pool = make(6)
    store(pool, PROMPT)
    lease, _ = pool.read(chain_of(PROMPT), 0, group=KV, owner=2, expires_s=9.0)
    assert store(pool, (90, 91)) == 0
    pool.release(lease, owner=2)
    store(pool, (90, 91))
    assert kv_pages(pool, PROMPT) == 4


def test_transfers_push_prefixes_out_but_stay_below_their_quota() -> None:
    pool = make(8, transfer=5)
    store(pool, PROMPT)
    number, hold = pool.reserve_blocks(5, owner=1, expires_s=9.0)
    assert len(hold.blocks) == 5
    assert kv_pages(pool, PROMPT) == 3
    assert pool.reserve_blocks(1, owner=1, expires_s=9.0)[0] == 0
    pool.release(number, owner=1)
    assert pool.blocks.used(Category.TRANSFER) == 0


def test_prefixes_stay_below_their_quota() -> None:
    pool = make(8, prefix=4)
    store(pool, PROMPT)
    assert pool.blocks.used(Category.PREFIX) == kv_pages(pool, PROMPT) == 4


def test_kv_whose_beginning_is_missing_is_refused() -> None:
    pool = make()
    number, reservation = pool.reserve(
        chain_of(PROMPT), 3, group=KV, item_bytes=300, owner=1, expires_s=9.0
    )
    assert (number, reservation.present, pool.counts.refused) == (0, 0, 1)


def test_a_block_cannot_be_given_back_twice() -> None:
    blocks = FreeList(4)
    taken = blocks.take(Category.PREFIX, 2)
    assert taken is not None
    blocks.give_back(taken)
    with pytest.raises(ValueError, match="free already"):
        blocks.give_back(taken)
    with pytest.raises(ValueError, match="free already"):
        blocks.give_back([taken[0], taken[0]])


def test_an_entry_never_needs_more_blocks_than_its_bytes() -> None:
    for item_bytes in (1, 100, 4000, 4096, 5000, 1 << 20):
        layout = ItemLayout(item_bytes, 4096)
        for count in {1, layout.max_items}:
            size = layout.payload_offset(count) + count * item_bytes
            assert size <= layout.blocks(count) * 4096 < size + 4096


def test_a_block_in_use_takes_less_than_a_kilobyte_of_the_index() -> None:
    """A million blocks of 64 KiB are 64 GiB of cache, and less than 1 GB of index."""
    tracemalloc.start()
    pool = PrefixPool(4000, 4096)
    before, _ = tracemalloc.get_traced_memory()
    for chain in range(40):
        store(pool, tuple(range(chain * 1000, chain * 1000 + 100)))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pool.num_entries >= 320
    assert (after - before) / pool.blocks.used(Category.PREFIX) < 1000


def test_a_match_keeps_the_head_longer_than_the_tail() -> None:
    pool = make(6)
    store(pool, PROMPT)
    pool.match(chain_of(PROMPT), {})
    store(pool, (90,))
    assert kv_pages(pool, PROMPT) == 5


def test_what_a_transfer_brought_becomes_prefix_cache_within_its_quota() -> None:
    pool = make(8, prefix=4)
    store(pool, (1, 2, 3, 4))
    number, reservation = pool.reserve(
        chain_of((7, 8)),
        0,
        group=KV,
        item_bytes=300,
        owner=1,
        expires_s=9.0,
        category=Category.TRANSFER,
    )
    assert pool.blocks.used(Category.TRANSFER) == len(reservation.entries) == 2
    pool.commit(number, owner=1, expires_s=9.0)
    assert (kv_pages(pool, (1, 2, 3, 4)), kv_pages(pool, (7, 8))) == (2, 2)
    assert pool.blocks.used(Category.TRANSFER) == 0
