"""From samples to a profile.

A longer prompt cannot take less time, nor a larger batch have a shorter step. Where medians say so
it is noise, and the points in question get their common geometric mean, each point counted once:
isotonic regression of the logarithm.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prfaas.errors import ConfigError
from prfaas.profile.curve import Curve, Scale, table
from prfaas.profile.instance import DecodeProfile, InstanceProfile, Origin
from prfaas.profile.samples import Samples

#: Where S_kv is tabulated; sliding windows are powers of two as well, so a straight piece is exact.
_LENGTHS = tuple(1 << power for power in range(21))


@dataclass(frozen=True, slots=True)
class Subject:
    """What was measured."""

    name: str
    model: str
    hardware: str
    gpus: int


def fit_profile(
    subject: Subject,
    samples: Samples,
    kv_bytes: Callable[[int], int],
    *,
    origin: Origin = Origin.MEASURED,
    source: str,
) -> InstanceProfile:
    """Return the profile that samples give; `decode` is None without samples of it.

    The largest batch is the largest that was measured: nothing is promised beyond.

    Raises:
        ConfigError: there is no sample of prefill.
    """
    if not samples.prefill:
        raise ConfigError("no prefill was measured; a profile needs one length at least")
    steps = samples.decode_medians()
    decode = DecodeProfile(rising_curve(steps), max_batch=steps[-1][0]) if steps else None
    return InstanceProfile(
        name=subject.name,
        model=subject.model,
        hardware=subject.hardware,
        gpus=subject.gpus,
        prefill_s=rising_curve(samples.prefill_medians()),
        kv_bytes=kv_curve(kv_bytes),
        decode=decode,
        origin=origin,
        source=source,
    )


def rising_curve(points: Sequence[tuple[float, float]]) -> Curve:
    """Return a log-log table through the points, made not to fall.

    >>> rising_curve([(1, 1.0), (2, 8.0), (3, 8.0), (4, 16.0)]).to_json()["points"]
    [[1.0, 1.0], [2.0, 8.0], [3.0, 8.0], [4.0, 16.0]]
    >>> round(rising_curve([(1, 1.0), (2, 8.0), (3, 2.0), (4, 16.0)]).at(2), 9)
    4.0
    """
    pools: list[tuple[float, int]] = []
    for _, y in points:
        value, count = y, 1
        while pools and pools[-1][0] > value:
            before, merged = pools.pop()
            share = count / (merged + count)
            value = math.exp((1 - share) * math.log(before) + share * math.log(value))
            count += merged
        pools.append((value, count))
    values = [value for value, count in pools for _ in range(count)]
    return table([(x, value) for (x, _), value in zip(points, values, strict=True)])


def kv_curve(kv_bytes: Callable[[int], int]) -> Curve:
    """Return S_kv as a table that is straight between powers of two.

    >>> kv_curve(lambda tokens: 100 + 2 * tokens).at(3000)
    6100.0
    """
    return table([(tokens, float(kv_bytes(tokens))) for tokens in _LENGTHS], Scale.LINEAR)
