"""Layer-wise sending against a scheduler in small: whatever the order, every item goes once."""

from hypothesis import given, settings
from hypothesis import strategies as st
from layer_world import PARTS, Ask, World

ASKS = st.builds(
    Ask,
    prompt_tokens=st.integers(1, 40),
    decode_pages=st.integers(0, 6),
    cached_pages=st.integers(0, 8),
    chunk_tokens=st.integers(1, 20),
)
#: Layers of a batch that tell nothing of themselves: some, or all as in a replayed graph.
DROPS = st.frozensets(st.sampled_from(sorted(PARTS)), max_size=3) | st.just(frozenset(PARTS))


def usable(ask: Ask, page_size: int) -> Ask:
    """Decode has less than the whole prompt."""
    ask.decode_pages = min(ask.decode_pages, (ask.prompt_tokens - 1) // page_size)
    return ask


@settings(max_examples=60)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=4),
    page_size=st.sampled_from([1, 4]),
    is_late=st.booleans(),
    data=st.data(),
)
def test_every_item_of_every_layer_is_sent_once_and_not_before_it_is_written(
    asks: list[Ask], page_size: int, is_late: bool, data: st.DataObject
) -> None:
    """`is_late`: overlap scheduling, where a chunk is sent after the next one was launched."""
    usable_asks = [usable(ask, page_size) for ask in asks]
    world = World(usable_asks, page_size=page_size, is_overlap=is_late)
    late: list[tuple[object, int]] = []
    try:
        while batch := [r for r in world.requests if r.extend_end < len(r.origin_input_ids)]:
            drop = data.draw(DROPS)
            num_queued = world.device.num_queued
            world.run_batch(batch, drop=drop)
            launched = [(req, req.extend_end) for req in batch]
            # What is sent now was computed; of what was launched just now, a part.
            world.device.run_to(num_queued if is_late else world.device.num_queued)
            world.device.run(data.draw(st.integers(0, len(PARTS))))
            due, late = (late, launched) if is_late else (launched, [])
            for req, end in due:
                world.send(req, end)
        world.device.run()
        for req, end in late:
            world.send(req, end)
        for req in world.requests:
            world.assert_sent(req)
        assert not world.pipeline.counters.fallbacks["hook_exception"]
    finally:
        world.device.run()
        world.pipeline.close()
