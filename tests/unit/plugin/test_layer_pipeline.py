import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from layer_device import HostTensor
from layer_world import PARTS, Ask, World
from waiting import until

from prfaas.errors import TransferError
from prfaas_plugin.layerwise.counters import Fallback
from prfaas_plugin.layerwise.entry_map import Kind, LayerKey
from prfaas_plugin.layerwise.pipeline import LayerPipeline
from prfaas_plugin.layerwise.planner import UnsupportedEngineError
from prfaas_plugin.layerwise.readiness import InOrder, readiness_of

ONE = Ask(prompt_tokens=8, decode_pages=0, cached_pages=0, chunk_tokens=8)
FIRST = LayerKey(Kind.ATTENTION, 0)


@pytest.fixture
def world() -> Iterator[World]:
    made = World([ONE], page_size=1)
    yield made
    made.device.run()
    made.pipeline.close()


def fallbacks(world: World) -> dict[str, int]:
    return dict(+world.pipeline.counters.fallbacks)


def test_a_layer_leaves_while_the_next_ones_compute(world: World) -> None:
    world.run_batch(world.requests)
    sent = world.sends.rooms[0].items
    assert not sent
    world.device.run(1)  # the layer; then the copies of three index arrays
    world.device.run(3)
    until(lambda: ("kv", 0) in sent and ("kv", 3) in sent)
    assert ("kv", 1) not in sent
    assert ("state.0.mamba", 0) not in sent
    world.device.run(1)
    until(lambda: ("state.0.mamba", 0) in sent)
    world.device.run()
    until(lambda: world.pipeline.counters.layers_early == len(PARTS))
    world.send(world.requests[0], 8)
    world.assert_sent(world.requests[0])
    assert world.pipeline.counters.layers_late == 0
    assert sum(world.pipeline.counters.hook_s.counts) == len(PARTS)
    assert fallbacks(world) == {}


def test_without_the_order_of_readiness_bytes_are_read_too_early() -> None:
    world = World([ONE], page_size=1, readiness=InOrderOfNothing())
    world.run_batch(world.requests)
    until(lambda: fallbacks(world).get(Fallback.HOOK_EXCEPTION, 0) > 0)
    world.pipeline.close()


class InOrderOfNothing(InOrder):
    """Says of a device that runs late that what was queued has run."""

    def host_copy(self, tensor: Any) -> Any:
        return np.array(tensor, dtype=np.int64)


def test_a_chunk_waits_for_its_last_page_to_be_full() -> None:
    ask = Ask(prompt_tokens=10, decode_pages=0, cached_pages=0, chunk_tokens=6)
    world = World([ask], page_size=4)
    req = world.requests[0]
    world.run_batch([req])
    world.device.run()
    until(lambda: world.pipeline.counters.layers_early == 3)
    assert world.sends.rooms[0].items["kv", 0] == {0: 16}
    world.send(req, 6)
    world.run_batch([req])
    world.device.run()
    world.send(req, 10)
    world.assert_sent(req)
    world.pipeline.close()


def test_what_decode_has_is_not_sent() -> None:
    ask = Ask(prompt_tokens=8, decode_pages=3, cached_pages=5, chunk_tokens=8)
    world = World([ask], page_size=1)
    req = world.requests[0]
    world.run_batch([req])
    world.device.run()
    until(lambda: world.pipeline.counters.layers_early == len(PARTS))
    assert world.sends.rooms[0].items["kv", 0] == {i: 64 + 3 + i for i in range(5)}
    world.send(req, 8)
    world.assert_sent(req)
    world.pipeline.close()


def test_a_full_queue_leaves_layers_to_send(world: World) -> None:
    world.sends.max_submissions = 3
    world.run_batch(world.requests)
    world.device.run()
    until(lambda: fallbacks(world).get(Fallback.QUEUE_FULL, 0) > 0)
    world.sends.max_submissions = 100
    world.send(world.requests[0], 8)
    world.assert_sent(world.requests[0])


def test_a_queue_that_stays_full_is_an_error_of_the_room(world: World) -> None:
    world.sends.max_submissions = 3
    world.run_batch(world.requests)
    world.device.run()
    with pytest.raises(TransferError, match="queue_full"):
        world.send(world.requests[0], 8)


@pytest.mark.parametrize("num_run", [0, 1, 3])
def test_a_room_that_is_aborted_gets_nothing_more(world: World, num_run: int) -> None:
    world.run_batch(world.requests)
    world.device.run(num_run)
    world.sends.abort(0, "gone")
    sent = {key: dict(held) for key, held in world.sends.rooms[0].items.items()}
    world.pipeline.forget(0)
    world.device.run()
    world.pipeline.close()
    assert world.sends.rooms[0].items == sent
    with pytest.raises(TransferError, match="gone"):
        world.send(world.requests[0], 8)
    assert fallbacks(world) == {}


def test_layers_without_an_event_are_left_to_send(world: World) -> None:
    world.run_batch(world.requests, drop=frozenset(PARTS))
    world.device.run()
    assert fallbacks(world) == {Fallback.NO_LAYER_EVENT: 1}
    world.send(world.requests[0], 8)
    world.assert_sent(world.requests[0])


def test_requests_without_destinations_go_chunk_by_chunk(world: World) -> None:
    world.requests[0].pending_bootstrap = True
    world.run_batch(world.requests)
    assert fallbacks(world) == {Fallback.NO_DESTINATION: 1}
    world.device.run()
    world.requests[0].pending_bootstrap = False
    world.send(world.requests[0], 8)
    world.assert_sent(world.requests[0])


def test_one_requests_broken_tables_do_not_stop_the_others() -> None:
    world = World([ONE, ONE], page_size=1)
    row, world.requests[0].kv.req_pool_idx = world.requests[0].kv.req_pool_idx, 99
    forward = world.pipeline.forward(SimpleNamespace(reqs=world.requests))
    for req in world.requests:
        req.extend_end = 8
    assert forward is not None
    forward.layer_written(FIRST)
    world.requests[0].kv.req_pool_idx = row
    assert fallbacks(world) == {Fallback.HOOK_EXCEPTION: 1}
    assert world.pipeline.counters.chunks == 1
    world.pipeline.close()


def test_an_engine_that_does_not_fit_is_counted_by_its_reason(world: World) -> None:
    def refuse(*_: Any) -> Any:
        raise UnsupportedEngineError(Fallback.UNSUPPORTED_POOL, "KV pool OddPool")

    pipeline = LayerPipeline(
        world,
        sends=world.sends,
        readiness=world.device,
        is_live=lambda room: True,
        make_planner=refuse,
    )
    assert not pipeline.start(world)
    assert pipeline.forward(SimpleNamespace(reqs=world.requests)) is None
    assert dict(pipeline.counters.fallbacks) == {Fallback.UNSUPPORTED_POOL: 1}
    pipeline.close()


def test_a_send_that_must_wait_for_a_stream_is_not_read_before(world: World) -> None:
    has_come = False
    event = SimpleNamespace(query=lambda: has_come)
    req = world.requests[0]
    world.pipeline.send(0, {"kv": world.pages(req, 0, 2)}, 0, event)
    assert world.sends.rooms[0].ready == set()
    has_come = True
    until(lambda: world.sends.rooms[0].ready == {0})


def move_pages(world: World, *, is_held: bool) -> None:
    """Do what the prefix cache does with pages whose tokens it has already."""
    req, row = world.requests[0], world.rows.req_to_token[0]
    held = world.pipeline.hold(0) if is_held else None
    world.allocator.free(HostTensor(row[0:3].copy()))
    row[0:3] += 1000
    for key in PARTS:
        world.written[key].update(row[0:3].tolist())
    if held is not None:
        world.pipeline.keep(0, held)
    world.send(req, 8)


def test_pages_on_their_way_are_kept_until_the_room_is_over(world: World) -> None:
    world.run_batch(world.requests)
    world.device.run()
    until(lambda: world.pipeline.counters.layers_early == len(PARTS))
    move_pages(world, is_held=True)
    assert world.sends.rooms[0].totals is not None
    assert world.allocator.freed == []
    world.pipeline.forget(0)
    assert world.allocator.freed == [64, 65, 66]
    world.pipeline.forget(0)
    assert world.allocator.freed == [64, 65, 66]


def test_pages_that_moved_and_were_not_kept_fail_the_room(world: World) -> None:
    world.run_batch(world.requests)
    world.device.run()
    with pytest.raises(TransferError, match="pages_moved"):
        move_pages(world, is_held=False)


def test_nothing_is_held_for_rooms_that_go_chunk_by_chunk(world: World) -> None:
    assert world.pipeline.hold(0) is None
    world.run_batch(world.requests)
    world.allocator.free_group_begin()
    assert world.pipeline.hold(0) is None


class FakeCudaEvent:
    """Comes when the test says so."""

    recorded: ClassVar[list["FakeCudaEvent"]] = []

    def __init__(self) -> None:
        self.has_come = False

    def record(self) -> None:
        self.recorded.append(self)

    def query(self) -> bool:
        return self.has_come


def test_on_cuda_each_mark_is_an_event_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(Event=FakeCudaEvent)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(FakeCudaEvent, "recorded", [])
    readiness = readiness_of("cuda")
    probes = [readiness.mark(), readiness.mark()]
    FakeCudaEvent.recorded[0].has_come = True
    assert [probe() for probe in probes] == [True, False]
    assert readiness_of("cpu").mark()()


def test_a_room_that_ends_while_pages_are_freed_gets_none_kept(world: World) -> None:
    world.run_batch(world.requests)
    held = world.pipeline.hold(0)
    assert held is not None
    world.allocator.free(HostTensor([70]))
    world.pipeline.forget(0)
    world.pipeline.keep(0, held)
    assert world.allocator.freed == [70]
    assert world.allocator.free_group is None
