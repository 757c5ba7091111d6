"""When the payload of chunks is worth compressing, and which entries' payload.

Compression pays where the link is the limit, the codec keeps up with it and the bytes shrink; on
all other paths it only costs CPU. It is off until all three were seen, and off again, for longer
and longer, when one of them no longer holds or the trial shows no gain.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prfaas.transfer.signals import PeerSignals

SMALLEST_BYTES = 16 << 10
"""Chunks below this are left alone: calling the codec costs more than it saves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionLimits:
    """When what pays. Pairs are (to go on, to start).

    threads: how many threads may encode at a time, a core for each.
    limited_share: of the time in which bytes waited, that in which they waited for the link.
    ratio: plain bytes per byte sent.
    headroom: what the codec can do per second, of what it must do to keep the link full. That is
        reckoned by its CPU seconds: a busy machine gives it fewer, which the trial shows.
    gain: least ratio of the goodput with and without, in every `trial_s` that it is on.
    remeasure_s: after so long the goodput without is measured again.
    smooth_s: time constant of shares and rates.
    samples: chunks that are encoded to see what comes of it, while it is off.
    pause_s: from an end, or from samples that promised nothing, to the next try; doubled each time
        up to `max_pause_s`.
    """

    threads: int = 1
    limited_share: tuple[float, float] = (0.4, 0.7)
    ratio: tuple[float, float] = (1.05, 1.1)
    headroom: tuple[float, float] = (1.0, 1.25)
    gain: float = 1.03
    smooth_s: float = 0.6
    trial_s: float = 1.0
    remeasure_s: float = 60.0
    samples: int = 8
    pause_s: float = 2.0
    max_pause_s: float = 60.0


class Verdict(StrEnum):
    """What was found last, and so why it is on or off."""

    LINK_NOT_FULL = "link_not_full"
    SAMPLING = "sampling"
    DOES_NOT_SHRINK = "does_not_shrink"
    CODEC_TOO_SLOW = "codec_too_slow"
    NO_GAIN = "no_gain"
    TRIAL = "trial"
    PAYS = "pays"
    REMEASURING = "remeasuring"


@dataclass(slots=True)
class CodecRate:
    """What encoding made of the last `window_bytes` or so: older chunks count half, and so on."""

    window_bytes: int = 64 << 20
    plain_bytes: float = 0.0
    sent_bytes: float = 0.0
    cpu_s: float = 0.0

    def take(self, plain_bytes: int, sent_bytes: int, cpu_s: float) -> None:
        """Count a chunk."""
        if self.plain_bytes > self.window_bytes:
            self.plain_bytes, self.sent_bytes = self.plain_bytes / 2, self.sent_bytes / 2
            self.cpu_s /= 2
        self.plain_bytes += plain_bytes
        self.sent_bytes += sent_bytes
        self.cpu_s += cpu_s

    @property
    def ratio(self) -> float:
        """Plain bytes per byte sent; 1 if nothing is known."""
        return self.plain_bytes / self.sent_bytes if self.sent_bytes else 1.0

    @property
    def bytes_per_s(self) -> float:
        """Plain bytes per CPU second; 0 if nothing is known, or it took too little to tell."""
        return self.plain_bytes / self.cpu_s if self.cpu_s > 0 else 0.0


class CompressionControl:
    """Says whether the chunks to one peer are to be encoded; told every period how the path does.

    `is_on`, and the `verdict` why.
    """

    def __init__(self, limits: CompressionLimits | None = None) -> None:
        self.is_on = False
        self.verdict = Verdict.LINK_NOT_FULL
        self.rate = CodecRate()
        self._seen = self.rate
        self._limits = limits or CompressionLimits()
        self._limited = 0.0
        self._samples_left = 0
        self._samples = 0
        self._pause_s = self._limits.pause_s
        self._retry_s = float("-inf")
        self._goodput = 0.0
        self._goodput_off = 0.0
        self._trial = _Trial()
        self._remeasure_s = float("inf")
        self._last: tuple[float, int] | None = None

    def wants(self) -> bool:
        """Say whether the next chunk is to be encoded."""
        if self.is_on:
            return True
        if self._samples_left:
            self._samples_left -= 1
            return True
        return False

    def coded(self, plain_bytes: int, sent_bytes: int, cpu_s: float) -> None:
        """Learn from a chunk; those that were left plain have equal sizes."""
        self._samples += 1
        self.rate.take(plain_bytes, sent_bytes, cpu_s)
        self._seen = self.rate

    def observe(self, signals: PeerSignals, acked_bytes: int, now: float) -> None:
        """Take a period's signals; `acked_bytes` is all that was acknowledged so far, decoded."""
        last, self._last = self._last, (now, acked_bytes)
        if last is None or now <= last[0] or not (signals.backlog_bytes and acked_bytes > last[1]):
            return
        seconds = now - last[0]
        weight = min(1.0, seconds / self._limits.smooth_s)
        self._limited += weight * (signals.is_link_limited - self._limited)
        rate = (acked_bytes - last[1]) / seconds
        self._goodput += weight * (rate - self._goodput) if self._goodput else rate
        self._trial.take(rate, seconds)
        if self.is_on:
            self._check(signals, now)
        else:
            self._look(signals, now)

    def describe(self) -> dict[str, Any]:
        """Return JSON-able values: the state, why, and what the codec was seen to do."""
        return {
            "is_on": self.is_on,
            "verdict": str(self.verdict),
            "ratio": self._seen.ratio,
            "codec_bytes_per_s": self._seen.bytes_per_s * self._limits.threads,
            "link_limited_share": self._limited,
        }

    def _look(self, signals: PeerSignals, now: float) -> None:
        """Start if the link is the limit, at a rate that is known, and samples promise a gain."""
        is_known = 0 < signals.available_bytes_per_s < math.inf  # NaN is not
        if self._limited < self._limits.limited_share[1] or not is_known:
            self.verdict = Verdict.LINK_NOT_FULL if now >= self._retry_s else self.verdict
            self._samples_left = 0
            return
        if now < self._retry_s:
            return
        if self._samples < self._limits.samples:
            self.verdict = Verdict.SAMPLING
            self._samples_left = self._limits.samples - self._samples
            return
        problem = self._problem(signals, start=True)
        if problem is not None:
            self._stop(problem, now)
            return
        self.is_on, self.verdict = True, Verdict.TRIAL
        self._goodput_off, self._trial = self._goodput, _Trial()
        self._remeasure_s = now + self._limits.remeasure_s

    def _check(self, signals: PeerSignals, now: float) -> None:
        """Stop if it no longer pays, or if the last trial showed no gain; else begin another."""
        problem = self._problem(signals, start=False)
        if problem is None and self._limited < self._limits.limited_share[0]:
            problem = Verdict.LINK_NOT_FULL
        trial = self._trial
        if problem is None and trial.seconds >= self._limits.trial_s:
            self._trial = _Trial(skip_s=0.0)
            if trial.rate < self._limits.gain * self._goodput_off:
                problem = Verdict.NO_GAIN
            else:
                self.verdict, self._pause_s = Verdict.PAYS, self._limits.pause_s
        if problem is not None:
            self._stop(problem, now)
        elif now >= self._remeasure_s:
            self.is_on, self.verdict, self._goodput = False, Verdict.REMEASURING, 0.0
            self._retry_s = now + self._limits.trial_s

    def _problem(self, signals: PeerSignals, *, start: bool) -> Verdict | None:
        limits, ratio = self._limits, self.rate.ratio
        if ratio < limits.ratio[start]:
            return Verdict.DOES_NOT_SHRINK
        can = self.rate.bytes_per_s * limits.threads
        must = signals.available_bytes_per_s * ratio
        is_slow = self.rate.cpu_s > 0 and can < limits.headroom[start] * must
        return Verdict.CODEC_TOO_SLOW if is_slow else None

    def _stop(self, verdict: Verdict, now: float) -> None:
        self.is_on, self.verdict = False, verdict
        self._retry_s = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._limits.max_pause_s)
        self._samples = self._samples_left = 0
        self._goodput = 0.0
        self.rate = CodecRate()


@dataclass(slots=True)
class _Trial:
    """The mean goodput of a while, without what was under way before it."""

    skip_s: float = 0.3
    seconds: float = 0.0
    num_bytes: float = 0.0

    def take(self, rate: float, seconds: float) -> None:
        """Count a period."""
        if self.skip_s > 0:
            self.skip_s -= seconds
            return
        self.seconds += seconds
        self.num_bytes += rate * seconds

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.num_bytes / self.seconds if self.seconds else 0.0


EntryKey = tuple[int, int]  # group, entry
TRY = 0
"""As a width: find out which one is best."""


@dataclass(slots=True)
class _EntryCoding:
    width: int = TRY
    skip: int = 0
    next_skip: int = 4


@dataclass(slots=True)
class EntryCodings:
    """How wide the elements of each entry are, as far as the codec found out.

    An entry whose chunks did not shrink is left alone for the next 4 chunks, then 8, up to
    `max_skip`. Layouts do not say what an entry's elements are: whoever has tried knows.

    >>> codings = EntryCodings()
    >>> codings.width((0, 0))
    0
    >>> codings.note((0, 0), 2, 1000, 700)
    >>> codings.width((0, 0))
    2
    """

    max_skip: int = 256
    smaller: float = 0.97
    _entries: dict[EntryKey, _EntryCoding] = field(default_factory=dict)

    def width(self, entry: EntryKey) -> int | None:
        """Return the width for the next chunk of an entry, `TRY`, or None: leave it plain."""
        coding = self._entries.setdefault(entry, _EntryCoding())
        if coding.skip:
            coding.skip -= 1
            return None
        return coding.width

    def note(self, entry: EntryKey, width: int, plain_bytes: int, sent_bytes: int) -> None:
        """Learn what a width made of a chunk."""
        coding = self._entries.setdefault(entry, _EntryCoding())
        if sent_bytes < self.smaller * plain_bytes:
            coding.width, coding.next_skip = width, 4
            return
        coding.width, coding.skip = TRY, coding.next_skip
        coding.next_skip = min(2 * coding.next_skip, self.max_skip)
