"""What a measurement gave before anything was fitted, and where it was taken."""

from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class PrefillSample:
    """One prompt with nothing cached, alone on the server: the time to its first token."""

    tokens: int
    ttft_s: float


@dataclass(frozen=True, slots=True)
class DecodeSample:
    """One run of `batch` streams at once: the median time between two tokens of a stream.

    `context_tokens` is the length of each prompt.
    """

    batch: int
    step_s: float
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Samples:
    """Everything that was measured, in the order it was."""

    prefill: tuple[PrefillSample, ...] = ()
    decode: tuple[DecodeSample, ...] = ()

    def prefill_medians(self) -> list[tuple[int, float]]:
        """Return seconds by tokens, shortest prompt first.

        >>> Samples(prefill=(PrefillSample(8, 3.0), PrefillSample(8, 1.0))).prefill_medians()
        [(8, 2.0)]
        """
        return _medians([(sample.tokens, sample.ttft_s) for sample in self.prefill])

    def decode_medians(self) -> list[tuple[int, float]]:
        """Return seconds of a step by batch, smallest batch first."""
        return _medians([(sample.batch, sample.step_s) for sample in self.decode])


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that ran the engine; empty or 0 is unknown."""

    cpu: str = ""
    gpu: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a profile came to be. `measured_at` is UTC, as in 2026-01-31T12:00:00Z.

    `complete` is false when the measurement was cut short.
    """

    measured_at: str = ""
    machine: Machine = field(default_factory=Machine)
    versions: tuple[tuple[str, str], ...] = ()
    complete: bool = True
    samples: Samples = field(default_factory=Samples)


def _medians(pairs: list[tuple[int, float]]) -> list[tuple[int, float]]:
    by_x: dict[int, list[float]] = {}
    for x, y in pairs:
        by_x.setdefault(x, []).append(y)
    return [(x, median(by_x[x])) for x in sorted(by_x)]
