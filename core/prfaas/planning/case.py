"""Cases: a site, its demand and what must hold, as a TOML file.

A case may name other files, profiles and a trace. Whoever reads it asks `case_files` which, reads
them and gives what they hold to `parse_case`.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prfaas.errors import ConfigError
from prfaas.planning.case_table import ANY, QUANTILE, SHARE, Table
from prfaas.planning.site import Constraints, PdPool, Site, TtftGoal
from prfaas.profile import InstanceProfile
from prfaas.profile.catalog import catalog_names, find_profile
from prfaas.profile.document import parse_profile
from prfaas.throughput import Demand, PrefillCluster
from prfaas.units import parse_rate
from prfaas.workload.lengths import Lengths, TruncatedLogNormal
from prfaas.workload.prefix_hits import Reuse, prefix_hits
from prfaas.workload.trace import Trace

_TOP = ("name", "prfaas", "pd", "requests", "slo", "prices", "constraints", "baselines")
_PRFAAS = ("name", "profile", "instances", "link", "link_share")
_PD = ("name", "profile", "instances")
_REQUESTS = ("output_tokens", "lengths", "trace", "reuse", "capacity_blocks")
_LENGTHS = ("mu", "sigma", "low", "high")
_SLO = ("tpot_s", "ttft_s", "ttft_quantile")
_CONSTRAINTS = (
    "threshold_step_tokens",
    "min_prfaas",
    "min_prefill",
    "min_decode",
    "link_share",
    "max_cost_per_hour",
)
_BASELINES = ("homogeneous_instances",)
_REUSE = (*Reuse, "none")


@dataclass(frozen=True, slots=True)
class Case:
    """What `plan` takes, under a name."""

    name: str
    site: Site
    demand: Demand
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class CaseFiles:
    """The files that a case names, as it names them."""

    profiles: tuple[str, ...]
    trace: str | None


def case_files(text: str, *, source: str) -> CaseFiles:
    """Return the files that a case names, for its reader to read.

    Raises:
        ConfigError: the text is no case.
    """
    top = _top(text, source)
    rows = [*top.tables("prfaas", allowed=_PRFAAS), top.table("pd", allowed=_PD)]
    names = [row.text("profile") for row in rows if "profile" in row]
    requests = top.table("requests", allowed=_REQUESTS)
    return CaseFiles(
        profiles=tuple(dict.fromkeys(filter(_is_file, names))),
        trace=requests.text("trace") if "trace" in requests else None,
    )


def parse_case(
    text: str,
    *,
    source: str,
    profiles: Mapping[str, str] | None = None,
    trace: Trace | None = None,
) -> Case:
    """Read a case; `source` names it in errors.

    `profiles` are the texts of the profile files and `trace` the trace that `case_files` names.

    Raises:
        ConfigError: one line, naming file, key, value and what is allowed.
    """
    files = profiles or {}
    top = _top(text, source)
    remotes = tuple(_remote(row, files) for row in top.tables("prfaas", allowed=_PRFAAS))
    pd = _pd(top.table("pd", allowed=_PD), files)
    baselines = top.table("baselines", allowed=_BASELINES)
    slo = top.table("slo", allowed=_SLO)
    demand = _demand(top.table("requests", allowed=_REQUESTS), slo, pd, trace)
    constraints = _constraints(top.table("constraints", allowed=_CONSTRAINTS), slo)
    homogeneous = baselines.whole_or_none("homogeneous_instances", least=2)
    prices = top.prices("prices", known=_hardware(remotes, pd))
    try:
        site = Site(
            remotes,
            pd,
            prices=prices,
            homogeneous_instances=homogeneous,
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    limited = top.table("constraints", allowed=_CONSTRAINTS)
    _check_prices(site, constraints, limited)
    return Case(top.text("name", source), site, demand, constraints)


def _hardware(remotes: Sequence[PrefillCluster], pd: PdPool) -> tuple[str, ...]:
    """Return what may have a price: the hardware of the site, and that of the catalog."""
    profiles = [*(remote.profile for remote in remotes), pd.profile]
    profiles += [find_profile(name) for name in catalog_names()]
    return tuple(dict.fromkeys(profile.hardware for profile in profiles))


def _check_prices(site: Site, constraints: Constraints, limited: Table) -> None:
    """Refuse a limit of cost where a cluster's hardware has no price."""
    hardware = {cluster.profile.hardware for cluster in site.clusters}
    missing = sorted(hardware - set(site.prices))
    if constraints.max_cost_per_hour is not None and missing:
        names = ", ".join(f'"{name}"' for name in missing)
        limited.refuse("max_cost_per_hour", f"only with all prices; [prices] lacks {names}")


def _top(text: str, source: str) -> Table:
    try:
        raw: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    return Table(raw, source, "", allowed=_TOP)


def _remote(row: Table, files: Mapping[str, str]) -> PrefillCluster:
    name = row.text("name")
    profile = _profile(row, files)
    instances = row.whole("instances", least=1)
    try:
        bits_per_s = parse_rate(row.text("link"), option="link")
    except ConfigError as error:
        row.refuse("link", str(error).rpartition("allowed: ")[2])
    share = row.number("link_share", SHARE, default=1.0)
    return PrefillCluster(name, profile, instances, bits_per_s / 8, share)


def _pd(row: Table, files: Mapping[str, str]) -> PdPool:
    name = row.text("name")
    profile = _profile(row, files)
    if profile.decode is None:
        row.refuse("profile", "a profile that can decode; this one only prefills")
    return PdPool(name, profile, row.whole("instances", least=1))


def _is_file(profile: str) -> bool:
    return profile.endswith(".json") or "/" in profile


def _profile(row: Table, files: Mapping[str, str]) -> InstanceProfile:
    name = row.text("profile")
    if _is_file(name):
        try:
            return parse_profile(files[name], name)
        except ConfigError as error:
            raise ConfigError(f"{row.name('profile')}: {error}") from None
    if name not in catalog_names():
        row.refuse("profile", f"a profile file (.json), or one of {', '.join(catalog_names())}")
    return find_profile(name)


def _demand(requests: Table, slo: Table, pd: PdPool, trace: Trace | None) -> Demand:
    if "trace" in requests and "lengths" in requests:
        requests.refuse("trace", "either a trace or lengths, not both")
    lengths = _trace_lengths(requests, trace) if trace else _log_normal(requests)
    if "output_tokens" in requests or trace is None:
        output_tokens = requests.number("output_tokens")
    else:
        output_tokens = max(float(trace.output_tokens.mean()), 1.0)
    tpot_s = slo.number("tpot_s")
    decode = pd.profile.decode
    assert decode is not None
    if decode.batch_within(tpot_s) == 0:
        step_s = decode.step_s.at(1)
        slo.refuse("tpot_s", f"{step_s:g} or more, the decode step of {pd.profile.name} at batch 1")
    return Demand(lengths, output_tokens, tpot_s)


def _trace_lengths(requests: Table, trace: Trace) -> Lengths:
    reuse = requests.text("reuse", str(Reuse.HYBRID))
    if reuse not in _REUSE:
        requests.refuse("reuse", ", ".join(_REUSE))
    if reuse == "none":
        return trace.prompt_lengths
    capacity = requests.whole_or_none("capacity_blocks", least=0)
    return prefix_hits(trace, Reuse(reuse), capacity_blocks=capacity).lengths


def _log_normal(requests: Table) -> Lengths:
    for key in ("reuse", "capacity_blocks"):
        if key in requests:
            requests.refuse(key, "only with a trace")
    requests.value("lengths")
    table = requests.table("lengths", allowed=_LENGTHS)
    mu, sigma, low, high = (table.number(key, ANY) for key in _LENGTHS)
    try:
        return TruncatedLogNormal(mu, sigma, low, high)
    except ConfigError as error:
        raise ConfigError(f"{requests.name('lengths')}: {error}") from None


def _constraints(table: Table, slo: Table) -> Constraints:
    return Constraints(
        threshold_step_tokens=table.whole("threshold_step_tokens", least=1, default=100),
        min_prfaas=table.whole("min_prfaas", least=0, default=0),
        min_prefill=table.whole("min_prefill", least=0, default=0),
        min_decode=table.whole("min_decode", least=0, default=1),
        link_share=table.number("link_share", SHARE, default=1.0),
        ttft=_ttft(slo),
        max_cost_per_hour=table.number_or_none("max_cost_per_hour"),
    )


def _ttft(slo: Table) -> TtftGoal | None:
    quantile = slo.number_or_none("ttft_quantile", QUANTILE)
    seconds = slo.number_or_none("ttft_s")
    if seconds is None:
        if quantile is not None:
            slo.refuse("ttft_quantile", "only with ttft_s")
        return None
    return TtftGoal(seconds, quantile)
