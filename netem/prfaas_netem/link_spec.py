"""What one direction of a link does to packets."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypedDict, Unpack, cast

from prfaas import units as q
from prfaas.errors import ConfigError
from prfaas_netem.jitter import Distribution
from prfaas_netem.loss import BurstLoss

Mode = Literal["auto", "gso", "packet"]
MODES: tuple[Mode, ...] = ("auto", "gso", "packet")

_MIN_QUEUE_BYTES = 512 * 1024
_NUMBERS = ("rate_bits_per_s", "delay_s", "jitter_s")
_SHARES = ("loss", "loss_correlation", "corruption", "duplication", "reordering")
_BURST_FORM = "as in 0.5%,25%: chance to enter and to leave a burst, then the loss in it and out"


class LinkText(TypedDict, total=False):
    """A link's options as a person writes them: 10gbit, 20ms, 2%. None is as good as not given."""

    rate: str | None
    rtt: str | None
    delay: str | None
    jitter: str | None
    jitter_distribution: str | None
    loss: str | None
    loss_correlation: str | None
    burst_loss: str | None
    corruption: str | None
    duplication: str | None
    reordering: str | None
    mode: str | None


@dataclass(frozen=True, kw_only=True)
class LinkSpec:
    """One direction of a link; `Topology` says which has which.

    `delay_s` is one way; `jitter_s` is the spread around it (`jitter.Distribution` says how).
    `loss` is the share of packets dropped, `loss_correlation` how much neighbours share that fate;
    `burst_loss` takes the place of both. `corruption` is the share of packets with one bit flipped
    behind the IP header, `duplication` of those that arrive twice, `reordering` of those that skip
    the delay and so overtake others. `mode` says what a packet is to a user-space link:
    `gso` the kernel's super-packets of up to 64 KiB (throughput), `packet` what a wire would
    carry (fidelity), `auto` packet while single packets meet anything and gso otherwise.

    Raises: ConfigError when a value is outside its range.
    """

    rate_bits_per_s: int = 100 * 10**9
    delay_s: float = 0.010
    jitter_s: float = 0.0
    jitter_distribution: Distribution = Distribution.UNIFORM
    loss: float = 0.0
    loss_correlation: float = 0.0
    burst_loss: BurstLoss | None = None
    corruption: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    mode: Mode = "auto"

    def __post_init__(self) -> None:
        for name in (*_NUMBERS, *_SHARES):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"link: {name} = {value!r}; allowed: a number")
        q.RATE.check(self.rate_bits_per_s, option="link rate", shown=self.rate_bits_per_s)
        q.DELAY.check(self.delay_s, option="link delay", shown=self.delay_s)
        q.JITTER.check(self.jitter_s, option="link jitter", shown=self.jitter_s)
        for name in _SHARES:
            value = getattr(self, name)
            q.LOSS.check(value, option=f"link {name.replace('_', ' ')}", shown=value)
        if self.jitter_distribution not in list(Distribution):
            allowed = ", ".join(Distribution)
            raise ConfigError(
                f"link jitter distribution: {self.jitter_distribution!r}; allowed: {allowed}"
            )
        if self.mode not in MODES:
            raise ConfigError(f"link mode: {self.mode!r}; allowed: {', '.join(MODES)}")
        self._check_together()

    def _check_together(self) -> None:
        if self.jitter_s > self.delay_s:
            raise ConfigError(
                f"link jitter: {q.format_duration(self.jitter_s)} is out of range; allowed: not"
                f" more than the one-way delay, {q.format_duration(self.delay_s)}"
            )
        if self.burst_loss is not None and (self.loss or self.loss_correlation):
            raise ConfigError("link burst loss: takes the place of loss; allowed: one of the two")
        if self.loss_correlation and not 0 < self.loss < 1:
            raise ConfigError("link loss correlation: allowed: with a loss between 0% and 100%")
        if self.loss_correlation > 0.99:
            raise ConfigError("link loss correlation: allowed: up to 99%")
        _ = self.loss_model  # checks itself
        if self.reordering and not self.delay_s:
            raise ConfigError("link reordering: allowed: with a delay, which packets then skip")
        if self.mode == "gso" and (self.corruption or self.duplication or self.reordering):
            raise ConfigError(
                "link mode: 'gso' cannot corrupt, duplicate or reorder; allowed: auto, packet"
            )

    @property
    def rtt_s(self) -> float:
        """Round trip over two directions like this one."""
        return 2 * self.delay_s

    @property
    def queue_bytes(self) -> int:
        """Backlog that the link holds before it drops: one round trip's worth, at least 512 KiB."""
        return max(_MIN_QUEUE_BYTES, int(self.rate_bits_per_s / 8 * self.rtt_s))

    @property
    def loss_model(self) -> float | BurstLoss:
        """What `loss.LossProcess` takes."""
        if self.burst_loss is None and self.loss_correlation:
            return BurstLoss.correlated(self.loss, self.loss_correlation)
        return self.loss if self.burst_loss is None else self.burst_loss

    @property
    def loss_share(self) -> float:
        """Share of packets lost, in the long run."""
        return self.loss if self.burst_loss is None else self.burst_loss.loss_share

    @property
    def needs_payload(self) -> bool:
        """Whether the bytes of packets are needed, not only their lengths."""
        return self.corruption > 0 or self.duplication > 0

    @property
    def splits_super_packets(self) -> bool:
        """Whether a user-space link works per wire packet."""
        meets_packets = self.loss_share > 0 or self.needs_payload or self.reordering > 0
        return self.mode == "packet" or (self.mode == "auto" and meets_packets)

    @classmethod
    def default(cls) -> "LinkSpec":
        """Return 100 Gbit/s configured, 20 ms round trip, no loss."""
        return cls()

    def changed(self, **options: Unpack[LinkText]) -> "LinkSpec":
        """Return a copy with options as a person writes them: 10gbit, 20ms, 2%.

        Raises: ConfigError naming the option and what is allowed.
        """
        return replace(self, **parse_options(**options))

    @classmethod
    def parse(cls, **options: Unpack[LinkText]) -> "LinkSpec":
        """Return the default link with the given options as a person writes them.

        Raises: ConfigError naming the option and what is allowed.
        """
        return cls.default().changed(**options)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values under the field names."""
        return asdict(self) | {"jitter_distribution": str(self.jitter_distribution)}

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
        if fields.get("burst_loss") is not None:
            fields["burst_loss"] = BurstLoss.from_json(fields["burst_loss"])
        if fields.get("jitter_distribution") in list(Distribution):
            fields["jitter_distribution"] = Distribution(fields["jitter_distribution"])
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
            if self.jitter_distribution is not Distribution.UNIFORM:
                text += f" {self.jitter_distribution}"
        if self.loss_share:
            text += f", {_percent(self.loss_share)} loss"
        if self.burst_loss is not None:
            text += f" in bursts of {self.burst_loss.loss_bad / self.burst_loss.leave:.3g}"
        elif self.loss_correlation:
            text += f" ({_percent(self.loss_correlation)} correlated)"
        for word in ("corruption", "duplication", "reordering"):
            if getattr(self, word):
                text += f", {_percent(getattr(self, word))} {word}"
        return text


def parse_options(**options: Unpack[LinkText]) -> dict[str, Any]:
    """Return the fields of a LinkSpec that options stand for.

    Raises: ConfigError naming the option and what is allowed, whatever the link is now.
    """
    given = {name: str(text) for name, text in options.items() if text is not None}
    if "rtt" in given and "delay" in given:
        raise ConfigError("--rtt and --delay: give one of them; rtt is twice the delay")
    if "burst_loss" in given and ("loss" in given or "loss_correlation" in given):
        raise ConfigError("--burst-loss: takes the place of --loss; give one of them")
    fields: dict[str, Any] = {}
    if "rate" in given:
        fields["rate_bits_per_s"] = q.parse_rate(given["rate"], option="--rate")
    if "rtt" in given:
        fields["delay_s"] = q.parse_duration(given["rtt"], option="--rtt", bounds=q.ROUND_TRIP) / 2
    if "delay" in given:
        fields["delay_s"] = q.parse_duration(given["delay"], option="--delay")
    if "jitter" in given:
        fields["jitter_s"] = q.parse_duration(given["jitter"], option="--jitter", bounds=q.JITTER)
    if "jitter_distribution" in given:
        fields["jitter_distribution"] = _distribution(given["jitter_distribution"])
    for name in set(_SHARES) & set(given):
        fields[name] = q.parse_ratio(given[name], option=f"--{name.replace('_', '-')}")
    if "mode" in given:
        fields["mode"] = given["mode"]
    return fields | _loss_together(given)


def _loss_together(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the loss fields that one kind of loss clears of the other."""
    if "burst_loss" in given:
        return {"burst_loss": _burst(given["burst_loss"]), "loss": 0.0, "loss_correlation": 0.0}
    if "loss" in given:
        kept = {} if "loss_correlation" in given else {"loss_correlation": 0.0}
        return {"burst_loss": None, **kept}
    return {}


def _burst(text: str) -> BurstLoss | None:
    """Return the channel of `enter,leave[,loss_bad[,loss_good]]`; `none` takes it away."""
    if text == "none":
        return None
    parts = [part.strip() for part in text.split(",")]
    if not 2 <= len(parts) <= 4:
        raise ConfigError(f"--burst-loss: {text!r}; allowed: none, or two to four, {_BURST_FORM}")
    shares = [q.parse_ratio(part, option="--burst-loss") for part in parts]
    names = ("enter", "leave", "loss_bad", "loss_good")
    return BurstLoss(**dict(zip(names, shares, strict=False)))


def _distribution(text: str) -> Distribution:
    if text not in list(Distribution):
        allowed = ", ".join(Distribution)
        raise ConfigError(f"--jitter-distribution: {text!r}; allowed: {allowed}")
    return Distribution(text)


def _percent(share: float) -> str:
    return f"{share * 100:.4g}%"
