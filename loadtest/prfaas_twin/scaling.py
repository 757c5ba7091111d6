"""How a twin shrinks the world: fewer bytes, slower time, the same ratios."""

from dataclasses import dataclass

from prfaas.errors import ConfigError

_MOST = 1e6


@dataclass(frozen=True, slots=True)
class Scaling:
    """`bytes_factor` B divides every byte of KV cache, `time_factor` D stretches every second.

    A link of R bytes per second is emulated at R / (B D), a latency of T at T D, an arrival rate of
    r at r / D. Then a transfer of S bytes takes (S / B) / (R / (B D)) = D S / R: as long, on the
    stretched clock, as in the real world; so does everything else, and every ratio is kept.
    """

    bytes_factor: float = 1.0
    time_factor: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("scale", self.bytes_factor), ("dilation", self.time_factor)):
            if not 1 / _MOST <= value <= _MOST:
                raise ConfigError(f"twin.{name} = {value:g}: allowed is {1 / _MOST:g} to {_MOST:g}")

    def size_bytes(self, real_bytes: float) -> float:
        """Return what so many bytes are here."""
        return real_bytes / self.bytes_factor

    def wall_s(self, real_s: float) -> float:
        """Return how long so many seconds take here."""
        return real_s * self.time_factor

    def real_s(self, wall_s: float) -> float:
        """Return what so many seconds here stand for."""
        return wall_s / self.time_factor

    def rate(self, real_bytes_per_s: float) -> float:
        """Return what a link's rate is here.

        >>> Scaling(bytes_factor=100, time_factor=2).rate(12.5e9)
        62500000.0
        """
        return real_bytes_per_s / (self.bytes_factor * self.time_factor)
