"""What `deploy --engine twin` makes of its options; no effect on the machine."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from prfaas.errors import ConfigError
from prfaas.twin_section import EngineKind, TwinSection

if TYPE_CHECKING:
    from prfaas_cli.options import DeployOptions
    from prfaas_netem import LinkSpec

MAX_INSTANCES = 64
"""Engines of one role in one region."""
_PREFILL_PROFILE, _HOME_PROFILE = "paper-1t-h200", "paper-1t-h20"
#: The paper's threshold, for the paper's profiles; what fits a tiny model on a CPU is another.
TWIN_THRESHOLD_TOKENS, SGLANG_THRESHOLD_TOKENS = 19_400, 512


def default_threshold(engine: str) -> int:
    """Return the threshold where none is asked for."""
    return TWIN_THRESHOLD_TOKENS if engine == EngineKind.TWIN else SGLANG_THRESHOLD_TOKENS


def parse_instances(text: str | None, num_regions: int) -> tuple[int, ...]:
    """Return the numbers of engines: prefills of each region, then decodes of the last.

    >>> parse_instances("4,3,5", 2)
    (4, 3, 5)
    >>> parse_instances(None, 3)
    (1, 1, 1, 1)

    Raises:
        ConfigError: not as many numbers.
    """
    if text is None:
        return (1,) * (num_regions + 1)
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if len(counts) != num_regions + 1 or not all(1 <= count <= MAX_INSTANCES for count in counts):
        raise ConfigError(
            f"--instances {text}: allowed are {num_regions + 1} numbers from 1 to {MAX_INSTANCES}:"
            f" prefills of each of the {num_regions} regions, then decodes of the last"
        )
    return counts


def parse_profiles(text: str | None, num_regions: int) -> tuple[str, ...]:
    """Return the twins' profiles, one for each region; the paper's, where none are asked for.

    >>> parse_profiles(None, 2)
    ('paper-1t-h200', 'paper-1t-h20')
    """
    if text is None:
        return (*[_PREFILL_PROFILE] * (num_regions - 1), _HOME_PROFILE)
    return tuple(part.strip() for part in text.split(","))


def twin_section(options: "DeployOptions", region: str) -> TwinSection | None:
    """Return the section of a region's twins; None where engines are SGLang's."""
    if options.engine != EngineKind.TWIN:
        return None
    profile = options.profiles[options.regions.index(region)]
    return TwinSection(profile=profile, scale=options.scale, dilation=options.dilation)


def scaled_link(link: "LinkSpec", options: "DeployOptions") -> "LinkSpec":
    """Return the link as it must be emulated, so that all ratios are those of the one asked for.

    Raises:
        ConfigError: the emulated link is out of range.
    """
    if options.engine != EngineKind.TWIN:
        return link
    rate_bits_per_s = int(link.rate_bits_per_s / (options.scale * options.dilation))
    return replace(
        link,
        rate_bits_per_s=rate_bits_per_s,
        delay_s=link.delay_s * options.dilation,
        jitter_s=link.jitter_s * options.dilation,
    )


def twin_problems(options: "DeployOptions") -> Iterator[str]:
    """Yield what is wrong with the options of a twin."""
    if options.engine not in list(EngineKind):
        yield f"--engine {options.engine}: allowed: {', '.join(EngineKind)}"
    if options.engine != EngineKind.TWIN:
        return
    if len(options.profiles) != len(options.regions):
        yield f"--profiles: allowed are {len(options.regions)}, one for each region"
        return
    for low, value, high, name in (
        (1.0, options.scale, 1e6, "--scale"),
        (1e-2, options.dilation, 1e3, "--dilation"),
    ):
        if not low <= value <= high:
            yield f"{name} {value:g}: allowed is {low:g} to {high:g}"
    yield from _profile_problems(options)


def _profile_problems(options: "DeployOptions") -> Iterator[str]:
    from prfaas_cli.profile_files import load_profile

    found = []
    for name in options.profiles:
        try:
            found.append(load_profile(name).profile)
        except ConfigError as error:
            yield f"--profiles: {error}"
    if len(found) != len(options.profiles):
        return
    home = found[-1]
    if home.decode is None:
        yield f"--profiles: {home.name} only prefills; the last region decodes"
    for other in found[:-1]:
        if other.kv_bytes != home.kv_bytes:
            yield (
                f"--profiles: caches of {other.name} and {home.name} differ; twins of one model"
                " have the same"
            )
