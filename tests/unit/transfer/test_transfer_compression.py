"""When chunks are encoded: the control on made-up paths, and what the sender makes of it."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.transfer import Entry, Group, Layout, Sender
from prfaas.transfer.compression import (
    CompressionControl,
    CompressionLimits,
    EntryCodings,
    Verdict,
)
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.sender import SendLimits
from prfaas.transfer.signals import PeerSignals
from prfaas.wire import Encoding, Feature, Hello, Open

PERIOD_S = 0.2
CHUNK_BYTES = 1 << 20
LINK = 125e6


@dataclass
class Path:
    """Bytes always wait. The sender moves `cpu` plain bytes per second besides encoding them."""

    link: float = LINK
    codec: float = 900e6
    ratio: float = 1.47
    cpu: float = 600e6
    control: CompressionControl = field(default_factory=CompressionControl)
    now: float = 100.0
    acked: float = 0.0
    told_rate: float | None = None  # what signals say of the link, if not the truth

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self._period()

    def run(self, seconds: float) -> float:
        """Return the goodput."""
        before = self.acked
        self.step(round(seconds / PERIOD_S))
        return (self.acked - before) / seconds

    def _period(self) -> None:
        wanted = [self.control.wants() for _ in range(8)]
        for _ in range(sum(wanted)):
            sent = round(CHUNK_BYTES / self.ratio)
            self.control.coded(CHUNK_BYTES, sent, CHUNK_BYTES / self.codec)
        is_on = all(wanted)
        busy = 1 / self.cpu + (1 / self.codec if is_on else 0.0)
        full = self.link * (self.ratio if is_on else 1.0)
        self.acked += min(full, 1 / busy) * PERIOD_S
        self.now += PERIOD_S
        signals = PeerSignals(
            available_bytes_per_s=self.link if self.told_rate is None else self.told_rate,
            backlog_bytes=1 << 24,
            is_link_limited=full < 1 / busy,
        )
        self.control.observe(signals, int(self.acked), self.now)


def test_it_is_on_within_three_seconds_where_the_link_is_the_limit() -> None:
    path = Path()
    assert not path.control.is_on
    path.step(15)
    assert path.control.is_on
    path.step(10)
    assert path.control.verdict == Verdict.PAYS
    assert path.run(10) == pytest.approx(1.47 * LINK, rel=0.02)


@pytest.mark.parametrize("rate", [0.0, math.nan, math.inf])
def test_nothing_begins_at_a_link_whose_rate_is_unknown(rate: float) -> None:
    path = Path(told_rate=rate)
    path.run(20)
    assert path.control.rate.plain_bytes == 0
    assert (path.control.is_on, path.control.verdict) == (False, Verdict.LINK_NOT_FULL)
    path.told_rate = None
    path.run(3)
    assert path.control.is_on


def test_a_codec_that_takes_no_time_to_speak_of_is_not_too_slow() -> None:
    path = Path(codec=math.inf)
    path.run(10)
    assert path.control.rate.cpu_s == 0
    assert (path.control.is_on, path.control.verdict) == (True, Verdict.PAYS)
    assert path.control.describe()["codec_bytes_per_s"] == 0


def test_nothing_is_encoded_where_the_cpu_is_the_limit() -> None:
    path = Path(link=1e9)
    path.run(60)
    assert path.control.rate.plain_bytes == 0
    assert path.control.verdict == Verdict.LINK_NOT_FULL


def test_a_codec_that_cannot_keep_up_is_tried_less_and_less() -> None:
    path = Path(codec=150e6)
    path.run(20)
    assert (path.control.is_on, path.control.verdict) == (False, Verdict.CODEC_TOO_SLOW)
    assert path.run(120) > 0.99 * LINK


def test_what_does_not_shrink_is_left_plain() -> None:
    path = Path(ratio=1.02)
    path.run(20)
    assert (path.control.is_on, path.control.verdict) == (False, Verdict.DOES_NOT_SHRINK)


def test_it_goes_off_when_the_link_is_no_longer_full_and_on_again_when_it_is() -> None:
    path = Path()
    path.run(10)
    path.link = 5e9
    path.run(3)
    assert (path.control.is_on, path.control.verdict) == (False, Verdict.LINK_NOT_FULL)
    path.link = LINK
    path.run(8)
    assert path.control.is_on


def test_a_trial_without_a_gain_ends_it() -> None:
    """The receiver needs so long to decode that nothing is won, and its window does not show it."""
    path = Path()
    path.step(4)
    while not path.control.is_on:
        path.step()
    path.control.rate.take(1 << 30, round((1 << 30) / 1.47), 1.0)
    for _ in range(12):
        path.now += PERIOD_S
        path.acked += LINK * PERIOD_S
        signals = PeerSignals(available_bytes_per_s=LINK, backlog_bytes=1, is_link_limited=True)
        path.control.observe(signals, int(path.acked), path.now)
    assert (path.control.is_on, path.control.verdict) == (False, Verdict.NO_GAIN)


def test_silence_changes_nothing() -> None:
    path = Path()
    path.run(10)
    for _ in range(500):
        path.now += PERIOD_S
        path.control.observe(PeerSignals(), int(path.acked), path.now)
    assert path.control.is_on


def test_one_odd_period_does_not_turn_it_off() -> None:
    path = Path()
    path.run(10)
    path.acked += LINK * PERIOD_S
    path.now += PERIOD_S
    path.control.observe(
        PeerSignals(available_bytes_per_s=LINK, backlog_bytes=1), int(path.acked), path.now
    )
    assert path.control.is_on


@given(
    link=st.floats(1e6, 2e10),
    codec=st.floats(1e7, 4e9),
    ratio=st.floats(1.0, 4.0),
    cpu=st.floats(1e8, 4e9),
)
def test_on_no_path_is_more_lost_than_the_trials_cost(
    link: float, codec: float, ratio: float, cpu: float
) -> None:
    path = Path(link=link, codec=codec, ratio=ratio, cpu=cpu)
    off = min(link, cpu)
    path.run(60)
    assert path.run(300) >= 0.97 * off
    it_pays = ratio > 1.12 and 1 / (1 / cpu + 1 / codec) > 1.3 * link * ratio
    if it_pays:
        assert path.control.is_on
        assert path.run(60) > 0.98 * ratio * off


def test_an_entry_that_does_not_shrink_is_tried_more_seldom() -> None:
    codings = EntryCodings()
    tried = 0
    for _ in range(10_000):
        if codings.width((0, 0)) is not None:
            codings.note((0, 0), 1, 1000, 1000)
            tried += 1
    assert 30 < tried < 50
    codings.note((0, 0), 2, 1000, 600)
    other = EntryCodings()
    assert other.width((0, 0)) == 0


# The sender

LAYOUT = Layout((Group("kv", (Entry(16 << 10, 100),)), Group("aux", (Entry(5, 4),))))


def sender(features: int) -> tuple[Sender, ChunkOut, ChunkOut]:
    """Return one that wants to encode, with a chunk of each group taken for lane 1."""
    limits = SendLimits(compression=CompressionLimits(threads=3))
    ours = Feature.COMPRESSION | Feature.DIGESTS
    machine = Sender(LAYOUT, node_id="p", session=9, limits=limits, features=ours)
    machine.lane_opened(1)
    hello = Hello("d", 1, 0, 1, LAYOUT.digest(), LAYOUT.wire_groups(), features)
    machine.receive(1, hello, 0.0)
    machine.receive(1, Open(7, 1, 60_000, 0, (8, 1)), 0.0)
    machine.submit(7, group="kv", start=0, items=np.arange(8))
    machine.submit(7, group="aux", start=0, items=np.arange(1))
    machine._peers["d"].compression.is_on = True
    assert machine.next_frame(1) is not None
    chunks = [machine.next_frame(1), machine.next_frame(1)]
    assert all(isinstance(chunk, ChunkOut) for chunk in chunks)
    return machine, chunks[0], chunks[1]  # type: ignore[return-value]


def test_only_large_chunks_are_encoded_and_only_where_that_was_agreed() -> None:
    machine, kv, aux = sender(Feature.COMPRESSION)
    assert machine.wants_encoding(1, kv)
    assert not machine.wants_encoding(1, aux)
    machine, kv, _ = sender(Feature.DIGESTS)
    assert not machine.wants_encoding(1, kv)


def test_what_was_encoded_is_counted_and_remembered() -> None:
    machine, kv, _ = sender(Feature.COMPRESSION)
    assert machine.encoding_width(1, kv.frame) == 0
    sent = replace(kv.frame, payload_bytes=70_000, encoding=Encoding.PLANES_2)
    machine.encoded(1, sent, 0.001)
    assert machine.encoding_width(1, kv.frame) == 2
    told = machine.describe()
    assert told["chunks_encoded_total"] == 1
    assert told["encoding_saved_bytes_total"] == kv.frame.payload_bytes - 70_000
    assert told["encode_cpu_s_total"] == 0.001
    compression = told["peers"]["d"]["compression"]
    assert compression["ratio"] == pytest.approx(kv.frame.payload_bytes / 70_000)
    assert compression["codec_bytes_per_s"] == pytest.approx(3 * kv.frame.payload_bytes / 0.001)


def test_what_is_encoded_after_its_lane_has_gone_is_only_counted() -> None:
    machine, kv, _ = sender(Feature.COMPRESSION)
    machine.lane_closed(1, "reset")
    machine.encoded(1, kv.frame, 0.001)
    assert machine.describe()["chunks_left_plain_total"] == 1
    assert machine.encoding_width(1, kv.frame) is None
