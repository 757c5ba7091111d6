"""Which packets a link loses: each on its own, or in bursts. Pure: chance comes in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from prfaas.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class BurstLoss:
    """Gilbert and Elliott's channel: a good and a bad state, one step per packet.

    `enter` is the chance to go from good to bad, `leave` from bad to good; `loss_good` and
    `loss_bad` are the shares lost in each. Source: tc-netem(8), `loss gemodel`, which names them
    p, r, 1-k and 1-h.

    Raises: ConfigError when a value is outside its range.
    """

    enter: float
    leave: float
    loss_bad: float = 1.0
    loss_good: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"burst loss: {item.name} = {value!r}; allowed: a number")
            low = 1e-9 if item.name in ("enter", "leave") else 0.0
            if not low <= value <= 1:
                raise ConfigError(
                    f"burst loss: {item.name} = {value:g} is out of range; allowed: {low:g} to 1"
                )

    @property
    def bad_share(self) -> float:
        """Share of packets that meet the bad state, in the long run."""
        return self.enter / (self.enter + self.leave)

    @property
    def loss_share(self) -> float:
        """Share of packets lost, in the long run.

        >>> BurstLoss(enter=0.01, leave=0.24).loss_share
        0.04
        """
        return self.bad_share * self.loss_bad + (1 - self.bad_share) * self.loss_good

    @classmethod
    def correlated(cls, loss: float, correlation: float) -> "BurstLoss":
        """Return the channel that loses `loss` of all packets, neighbours correlated by that much.

        The share stays exactly `loss`; netem's own `loss RANDOM CORRELATION` misses it.

        >>> BurstLoss.correlated(0.1, 0.5)
        BurstLoss(enter=0.05, leave=0.45, loss_bad=1.0, loss_good=0.0)
        """
        return cls(enter=loss * (1 - correlation), leave=(1 - loss) * (1 - correlation))

    @classmethod
    def from_json(cls, value: object) -> "BurstLoss":
        """Return the channel of a JSON object with the field names.

        Raises: ConfigError on unknown or missing fields and wrong values.
        """
        allowed = {item.name for item in fields(cls)}
        if not isinstance(value, Mapping) or not {"enter", "leave"} <= set(value) <= allowed:
            raise ConfigError(
                f"burst loss: {value!r}; allowed: an object with enter, leave and, where wanted,"
                " loss_bad and loss_good"
            )
        return cls(**cast(Mapping[str, Any], value))


class LossProcess:
    """Says of one packet after the other whether it is lost. Not shared between threads."""

    def __init__(self, model: float | BurstLoss, *, chance: Callable[[], float]) -> None:
        """`model` is a share of packets, or a channel; `chance` gives uniform numbers in [0, 1)."""
        self._model = model
        self._chance = chance
        self._is_bad = False

    def hits(self, segments: int = 1) -> bool:
        """Return whether a packet that stands for so many segments is lost: any of them is."""
        model = self._model
        if isinstance(model, BurstLoss):
            # Each segment is a step of the channel, also after one that is lost.
            return sum(self._step(model) for _ in range(segments)) > 0
        share = model if segments == 1 else 1 - (1 - model) ** segments
        return share > 0 and self._chance() < share

    def _step(self, model: BurstLoss) -> bool:
        lost = self._chance() < (model.loss_bad if self._is_bad else model.loss_good)
        if self._chance() < (model.leave if self._is_bad else model.enter):
            self._is_bad = not self._is_bad
        return lost
