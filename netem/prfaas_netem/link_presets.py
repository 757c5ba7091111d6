"""Links by name, for those who do not want to think of numbers."""

from prfaas.errors import ConfigError
from prfaas_netem.jitter import Distribution
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.loss import BurstLoss

PRESETS = {
    # Two buildings of a city: 50 km of fibre and back.
    "metro": LinkSpec(delay_s=0.0005, jitter_s=0.00002),
    # The paper's link: neighbouring regions, 100 Gbit/s, 20 ms.
    "cross-region": LinkSpec(delay_s=0.010, jitter_s=0.0001),
    # Frankfurt and Virginia, as clouds publish it: some 90 ms.
    "transatlantic": LinkSpec(
        rate_bits_per_s=40 * 10**9,
        delay_s=0.045,
        jitter_s=0.0005,
        jitter_distribution=Distribution.PARETO,
    ),
    # A leased line on a bad day: 1.5 % lost, three at a time.
    "lossy": LinkSpec(
        rate_bits_per_s=10**9,
        delay_s=0.020,
        jitter_s=0.002,
        jitter_distribution=Distribution.NORMAL,
        burst_loss=BurstLoss(enter=0.005, leave=0.33),
        corruption=0.0001,
        duplication=0.0005,
        reordering=0.002,
    ),
}


def preset(name: str) -> LinkSpec:
    """Return a link by its name.

    Raises: ConfigError naming those there are.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset: {name!r}; allowed: {', '.join(PRESETS)}")
    return PRESETS[name]
