"""Any sequence of operations on a prefix pool against a model that only knows sets."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from prefix_pool_model import PoolModel, chain_of

from prfaas.blocks.block_layout import KEY_BYTES, KV, ItemLayout
from prfaas.blocks.entry import Entry, Run, State
from prfaas.blocks.free_list import Category
from prfaas.blocks.prefix_pool import PrefixPool

BLOCK_BYTES = 512
NUM_BLOCKS = 16
ITEM_BYTES = {KV: 100, "mamba": 700, "swa": 150}
NEEDED = [{}, {"mamba": 1}, {"swa": 3}, {"mamba": 1, "swa": 2}]
OWNERS = (1, 2, 3)


def prompt_of(length: int, fork: int) -> tuple[int, ...]:
    """Return one of few prompts, most of which share a prefix."""
    return tuple(0 if at < fork else 1 for at in range(length))


tokens = st.builds(prompt_of, st.integers(1, 12), st.sampled_from([12, 12, 3, 5, 6]))
groups = st.sampled_from([KV, KV, "mamba", "swa"])
owners = st.sampled_from(OWNERS)


class PoolRules(RuleBasedStateMachine):
    """Owners reserve, commit, read, give back, end and let time pass."""

    @initialize(
        quota=st.sampled_from([NUM_BLOCKS, 9, 5]), transfer_quota=st.integers(0, NUM_BLOCKS)
    )
    def start(self, quota: int, transfer_quota: int) -> None:
        self.quotas = {Category.PREFIX: quota, Category.TRANSFER: transfer_quota}
        self.pool = PrefixPool(NUM_BLOCKS, BLOCK_BYTES, self.quotas)
        self.model = PoolModel()
        self.now_s = 0.0
        #: What owners hold: id -> (owner, expiry, entries, is a lease).
        self.holds: dict[int, tuple[int, float, list[Entry], bool]] = {}
        self.transfers: dict[int, tuple[int, float, tuple[int, ...]]] = {}

    def settle(self) -> None:
        """Take over what the pool says was freed."""
        held = {
            id(entry)
            for *_, entries, is_lease in self.holds.values()
            for entry in entries
            if is_lease
        }
        for entry in self.pool.freed:
            assert id(entry) not in held, "freed while somebody reads it"
            self.model.remove(entry)
        self.pool.freed.clear()

    @rule(
        prompt=tokens,
        group=groups,
        owner=owners,
        ttl_s=st.integers(1, 9),
        start=st.integers(0, 4),
        moved=st.booleans(),
    )
    def reserve(
        self, prompt: Any, group: str, owner: int, ttl_s: int, start: int, moved: bool
    ) -> None:
        chain = chain_of(prompt)
        number, reservation = self.pool.reserve(
            chain,
            min(start, len(prompt) - 1),
            group=group,
            item_bytes=ITEM_BYTES[group],
            owner=owner,
            expires_s=self.now_s + ttl_s,
            category=Category.TRANSFER if moved else Category.PREFIX,
        )
        assert bool(number) == bool(reservation.entries)
        assert reservation.present == self.model.kv_pages(prompt)
        for entry in reservation.entries:
            layout = ItemLayout(ITEM_BYTES[group], BLOCK_BYTES)
            assert len(entry.blocks) == layout.blocks(entry.count)
            assert chain[entry.first * KEY_BYTES : entry.end * KEY_BYTES] == entry.keys
        if number:
            self.holds[number] = (owner, self.now_s + ttl_s, reservation.entries, False)
            self.model.names(reservation.entries, prompt)
        self.settle()

    @rule(prompt=tokens, owner=owners, with_state=st.sampled_from(["", "mamba", "swa"]))
    def store(self, prompt: Any, owner: int, with_state: str) -> None:
        """What an engine does: states first, then the KV they hang on."""
        for group in [with_state, KV] if with_state else [KV]:
            start = len(prompt) - 1 if group == "mamba" else 0
            before = set(self.holds)
            self.reserve(prompt, group, owner, 5, start, moved=False)
            for number in set(self.holds) - before:
                self.commit_hold(number, owner, 5)

    @rule(pick=st.integers(0, 99), is_owner=st.sampled_from([True, True, True, False]))
    def commit(self, pick: int, is_owner: bool) -> None:
        number = self.pick(pick, lease=False)
        if number is not None:
            owner = self.holds[number][0]
            self.commit_hold(number, owner if is_owner else owner % 3 + 1, 3)

    def commit_hold(self, number: int, owner: int, ttl_s: int) -> None:
        mine = self.holds[number][0] == owner
        done = self.pool.commit(number, owner=owner, expires_s=self.now_s + ttl_s)
        assert (done is not None) == mine
        if done is not None:
            del self.holds[number]
            self.model.add(done.stored)
        self.settle()

    @rule(
        prompt=tokens, group=groups, owner=owners, ttl_s=st.integers(1, 9), start=st.integers(0, 4)
    )
    def read(self, prompt: Any, group: str, owner: int, ttl_s: int, start: int) -> None:
        start = min(start, len(prompt) - 1)
        chain = chain_of(prompt)
        number, found = self.pool.read(
            chain, start, group=group, owner=owner, expires_s=self.now_s + ttl_s
        )
        position = start
        for piece in found:
            for offset in range(piece.offset, piece.offset + piece.count):
                key = piece.entry.keys[offset * KEY_BYTES : (offset + 1) * KEY_BYTES]
                assert key == chain[position * KEY_BYTES : (position + 1) * KEY_BYTES]
                position += 1
        assert position - start == self.model.readable(prompt, group, start)
        if number:
            entries = [piece.entry for piece in found]
            self.holds[number] = (owner, self.now_s + ttl_s, entries, True)

    @rule(pick=st.integers(0, 99), lease=st.booleans())
    def release(self, pick: int, lease: bool) -> None:
        number = self.pick(pick, lease=lease)
        if number is not None:
            owner = self.holds.pop(number)[0]
            assert self.pool.release(number, owner=owner)
            assert not self.pool.release(number, owner=owner)
        self.settle()

    @precondition(lambda self: self.now_s > 6)
    @rule(count=st.integers(1, 5), owner=owners, ttl_s=st.integers(1, 9))
    def transfer(self, count: int, owner: int, ttl_s: int) -> None:
        number, hold = self.pool.reserve_blocks(count, owner=owner, expires_s=self.now_s + ttl_s)
        if number:
            assert len(hold.blocks) == count
            self.transfers[number] = (owner, self.now_s + ttl_s, hold.blocks)
        self.settle()

    @precondition(lambda self: len(self.holds) > 2)
    @rule(owner=owners)
    def end_owner(self, owner: int) -> None:
        self.holds = {k: v for k, v in self.holds.items() if v[0] != owner}
        self.transfers = {k: v for k, v in self.transfers.items() if v[0] != owner}
        self.pool.release_owner(owner)
        self.settle()

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds
        self.holds = {k: v for k, v in self.holds.items() if v[1] > self.now_s}
        self.transfers = {k: v for k, v in self.transfers.items() if v[1] > self.now_s}
        self.pool.expire(self.now_s)
        self.settle()

    @precondition(lambda self: self.model.num_entries > 4)
    @rule(prompt=tokens, group=groups)
    def drop(self, prompt: Any, group: str) -> None:
        self.model.dying(self.pool.drop(chain_of(prompt), len(prompt) - 1, group=group))
        self.settle()

    @precondition(lambda self: self.model.num_entries > 3)
    @rule()
    def restart(self) -> None:
        """A new pool with the stored entries: nothing committed is lost, nothing else is there."""
        entries = [(fresh_copy(entry), key) for entry, key in self.model.records()]
        self.pool = PrefixPool(NUM_BLOCKS, BLOCK_BYTES, self.quotas)
        assert self.pool.restore(entries) == []
        self.holds.clear()
        self.transfers.clear()
        self.model.replace([entry for entry, _ in entries])

    @rule(prompt=tokens, needed=st.sampled_from(NEEDED), start=st.sampled_from([0, 0, 2, 4]))
    def match(self, prompt: Any, needed: dict[str, int], start: int) -> None:
        match = self.pool.match(chain_of(prompt), needed, start=start)
        assert match.kv_pages == self.model.kv_pages(prompt)
        assert list(match.usable) == self.model.usable(prompt, needed, start)

    def pick(self, pick: int, *, lease: bool) -> int | None:
        numbers = sorted(number for number, hold in self.holds.items() if hold[3] == lease)
        return numbers[pick % len(numbers)] if numbers else None

    @invariant()
    def blocks_are_used_once(self) -> None:
        if not hasattr(self, "pool"):
            return
        held = [hold[2] for hold in self.holds.values() if not hold[3]]
        used = [block for entries in held for entry in entries for block in entry.blocks]
        used += [block for *_, blocks in self.transfers.values() for block in blocks]
        used += self.model.blocks()
        assert len(used) == len(set(used)), "one block, two users"
        blocks = self.pool.blocks
        total = blocks.used(Category.PREFIX) + blocks.used(Category.TRANSFER)
        assert total + blocks.num_free == NUM_BLOCKS
        assert total >= len(used)
        for category in Category:
            assert blocks.used(category) <= blocks.quota(category)

    @invariant()
    def states_have_their_prefix(self) -> None:
        if hasattr(self, "pool"):
            self.model.check_prefixes()

    def teardown(self) -> None:
        """With nobody left, everything that is not stored is free: nothing leaks."""
        if not hasattr(self, "pool"):
            return
        for owner in OWNERS:
            self.pool.release_owner(owner)
        self.holds.clear()
        self.settle()
        assert self.pool.num_holds == 0
        stored = len(self.model.blocks())
        assert self.pool.blocks.used(Category.PREFIX) == stored
        assert self.pool.blocks.used(Category.TRANSFER) == 0
        assert self.pool.num_entries == self.model.num_entries


def fresh_copy(entry: Entry) -> Entry:
    kind = type(entry)
    assert kind in (Run, State)
    return kind(entry.oid, entry.group, entry.first, entry.keys, entry.item_bytes, entry.blocks)


@pytest.mark.timeout(120)
class TestPool(PoolRules.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("seed", range(12))
def test_a_long_busy_life_keeps_the_rules(seed: int) -> None:
    """The same rules, every one often, in lives longer than hypothesis tries."""
    rng = random.Random(seed)
    rules = PoolRules()
    rules.start(quota=rng.choice([NUM_BLOCKS, 9]), transfer_quota=rng.choice([0, 6]))
    for _ in range(400):
        _random_step(rules, rng)
        rules.blocks_are_used_once()
        rules.states_have_their_prefix()
    rules.teardown()


def _random_step(rules: PoolRules, rng: random.Random) -> None:
    prompt = prompt_of(rng.randint(1, 12), rng.choice([12, 12, 3, 5, 6]))
    group = rng.choice([KV, KV, "mamba", "swa"])
    owner, ttl_s, start = rng.choice(OWNERS), rng.randint(1, 9), rng.randint(0, 4)
    steps: list[tuple[int, Callable[[], None]]] = [
        (30, lambda: rules.store(prompt, owner, rng.choice(["", "mamba", "swa"]))),
        (10, lambda: rules.reserve(prompt, group, owner, ttl_s, start, rng.random() < 0.3)),
        (10, lambda: rules.commit(rng.randrange(99), rng.random() < 0.8)),
        (15, lambda: rules.read(prompt, group, owner, ttl_s, start)),
        (25, lambda: rules.match(prompt, rng.choice(NEEDED), rng.choice([0, 0, 2, 4]))),
        (8, lambda: rules.release(rng.randrange(99), rng.random() < 0.5)),
        (3, lambda: rules.wait(rng.randint(1, 4))),
        (2, lambda: rules.transfer(rng.randint(1, 4), owner, ttl_s)),
        (1, lambda: rules.drop(prompt, group)),
        (1, lambda: rules.end_owner(owner)),
        (1, rules.restart),
    ]
    (step,) = rng.choices([step for _, step in steps], [weight for weight, _ in steps])
    step()
