"""What one direction of a link does to packets."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

from prfaas import units as q
from prfaas.errors import ConfigError

Mode = Literal["auto", "gso", "packet"]
MODES: tuple[Mode, ...] = ("auto", "gso", "packet")

_MIN_QUEUE_BYTES = 512 * 1024


@dataclass(frozen=True, kw_only=True)
class LinkSpec:
    """One direction of a link; `Topology.link` applies it to both.

    `delay_s` is one way; `jitter_s` is the half-width of a uniform spread around it; `loss` is the
    share of packets dropped, each on its own. `mode` says what a packet is to a user-space link:
    `gso` the kernel's super-packets of up to 64 KiB (throughput), `packet` what a wire would
    carry (fidelity), `auto` packet while there is loss and gso otherwise.

    Raises: ConfigError when a value is outside its range.
    """

    rate_bits_per_s: int = 100 * 10**9
    delay_s: float = 0.010
    jitter_s: float = 0.0
    loss: float = 0.0
    mode: Mode = "auto"

    def __post_init__(self) -> None:
        for name in ("rate_bits_per_s", "delay_s", "jitter_s", "loss"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"link: {name} = {value!r}; allowed: a number")
        q.RATE.check(self.rate_bits_per_s, option="link rate", shown=self.rate_bits_per_s)
        q.DELAY.check(self.delay_s, option="link delay", shown=self.delay_s)
        q.JITTER.check(self.jitter_s, option="link jitter", shown=self.jitter_s)
        q.LOSS.check(self.loss, option="link loss", shown=self.loss)
        if self.jitter_s > self.delay_s:
            raise ConfigError(
                f"link jitter: {q.format_duration(self.jitter_s)} is out of range; allowed: not"
                f" more than the one-way delay, {q.format_duration(self.delay_s)}"
            )
        if self.mode not in MODES:
            raise ConfigError(f"link mode: {self.mode!r}; allowed: {', '.join(MODES)}")

    @property
    def rtt_s(self) -> float:
        """Round trip over two directions like this one."""
        return 2 * self.delay_s

    @property
    def queue_bytes(self) -> int:
        """Backlog that the link holds before it drops: one round trip's worth, at least 512 KiB."""
        return max(_MIN_QUEUE_BYTES, int(self.rate_bits_per_s / 8 * self.rtt_s))

    @property
    def splits_super_packets(self) -> bool:
        """Whether a user-space link works per wire packet."""
        return self.mode == "packet" or (self.mode == "auto" and self.loss > 0)

    @classmethod
    def default(cls) -> "LinkSpec":
        """Return 100 Gbit/s configured, 20 ms round trip, no loss."""
        return cls()

    def changed(
        self,
        *,
        rate: str | None = None,
        rtt: str | None = None,
        delay: str | None = None,
        jitter: str | None = None,
        loss: str | None = None,
        mode: str | None = None,
    ) -> "LinkSpec":
        """Return a copy with options as a person writes them: 10gbit, 20ms, 2%.

        Raises: ConfigError naming the option and what is allowed.
        """
        if rtt is not None and delay is not None:
            raise ConfigError("--rtt and --delay: give one of them; rtt is twice the delay")
        changes: dict[str, Any] = {}
        if rate is not None:
            changes["rate_bits_per_s"] = q.parse_rate(rate, option="--rate")
        if rtt is not None:
            changes["delay_s"] = q.parse_duration(rtt, option="--rtt", bounds=q.ROUND_TRIP) / 2
        if delay is not None:
            changes["delay_s"] = q.parse_duration(delay, option="--delay")
        if jitter is not None:
            changes["jitter_s"] = q.parse_duration(jitter, option="--jitter", bounds=q.JITTER)
        if loss is not None:
            changes["loss"] = q.parse_ratio(loss, option="--loss")
        if mode is not None:
            changes["mode"] = mode
        return replace(self, **changes)

    @classmethod
    def parse(
        cls,
        *,
        rate: str | None = None,
        rtt: str | None = None,
        delay: str | None = None,
        jitter: str | None = None,
        loss: str | None = None,
        mode: str | None = None,
    ) -> "LinkSpec":
        """Return the default link with the given options as a person writes them.

        Raises: ConfigError naming the option and what is allowed.
        """
        return cls.default().changed(
            rate=rate, rtt=rtt, delay=delay, jitter=jitter, loss=loss, mode=mode
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values under the field names."""
        return asdict(self)

    def merged(self, changes: Mapping[str, Any]) -> "LinkSpec":
        """Return a copy with fields in JSON form; `rtt_s` may stand for `delay_s`.

        Raises: ConfigError on unknown fields, wrong types and values out of range.
        """
        fields = dict(changes)
        if "rtt_s" in fields:
            rtt_s = fields.pop("rtt_s")
            if "delay_s" in fields or not isinstance(rtt_s, int | float):
                raise ConfigError("link: rtt_s must be a number and excludes delay_s")
            fields["delay_s"] = rtt_s / 2
        unknown = sorted(set(fields) - set(asdict(self)))
        if unknown:
            allowed = ", ".join([*asdict(self), "rtt_s"])
            raise ConfigError(f"link: unknown field {unknown[0]!r}; allowed: {allowed}")
        return replace(self, **fields)

    @classmethod
    def from_json(cls, value: object) -> "LinkSpec":
        """Return the spec of `to_json`; missing fields take their defaults.

        Raises: ConfigError as `merged`.
        """
        if not isinstance(value, Mapping):
            raise ConfigError(f"link: {value!r}; allowed: an object of link fields")
        return cls.default().merged(cast(Mapping[str, Any], value))

    def __str__(self) -> str:
        text = f"{q.format_rate(self.rate_bits_per_s)}, {q.format_duration(self.delay_s)} one way"
        if self.jitter_s:
            text += f" ±{q.format_duration(self.jitter_s)}"
        return text + (f", {self.loss * 100:.4g}% loss" if self.loss else "")
