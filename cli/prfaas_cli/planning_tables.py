"""The comparison tables of docs/planning.md: the paper's figures beside ours.

    python -m prfaas_cli.planning_tables [FILE] [--write]

prints them, or the file with them between its marks; --write puts them into the file. A test
compares the committed file.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from prfaas.planning import Plan, baselines, plan
from prfaas.planning.paper import paper_case
from prfaas.profile.catalog import TABLE_3, TABLE_5, find_profile
from prfaas.profile.catalog.table3 import LENGTHS
from prfaas.throughput import Expectation, Stages, stages
from prfaas.throughput.equations import egress_bytes_per_s
from prfaas_cli.plan_study import gbps

_MIB = 2**20
_LINKS_GBPS = (100.0, 20.0, 13.0, 12.0, 10.0, 8.0, 6.0, 5.0, 4.5, 4.0, 2.0, 1.0)

#: What, the paper's figure, ours at our optimum, ours at the paper's threshold.
Figure = tuple[str, float, float, float | None]


def tables() -> dict[str, str]:
    """Return all tables by name, as Markdown."""
    return {
        "table-6": _markdown(_table_6()),
        "links": _markdown(_links()),
        "table-5": _markdown(_table_5()),
        "table-3": _markdown(_table_3()),
    }


def filled(text: str) -> str:
    """Return a document with every table between its marks; what is there now is replaced."""
    for name, table in tables().items():
        begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        pattern = re.escape(begin) + r".*?" + re.escape(end)
        text = re.sub(pattern, f"{begin}\n{table}\n{end}", text, flags=re.DOTALL)
    return text


def _table_6() -> Iterator[Sequence[str]]:
    yield ("", "paper", "ours", "off by", "ours at t = 19,400")
    for name, paper, ours, at_paper in _figures():
        other = "" if at_paper is None else _number(at_paper)
        yield (name, _number(paper), _number(ours), f"{ours / paper - 1:+.1%}", other)


def _figures() -> Iterator[Figure]:
    case = paper_case()
    site, demand = case.site, case.demand
    found, base = plan(site, demand), baselines(site, demand)
    naive = base.naive
    assert naive is not None
    fixed = stages(site.remotes, site.pd.divided(3, 5), demand, 19_400)
    yield ("t (tokens)", 19_400, found.threshold_tokens, None)
    yield from _prfaas_pd(found, fixed)
    yield from _homogeneous(base.homogeneous)
    yield from _naive(naive)
    lowest = base.homogeneous.lambda_max
    yield ("ratio PrfaaS-PD", 1.54, found.lambda_max / lowest, fixed.lambda_max / lowest)
    yield ("ratio naive", 1.16, naive.lambda_max / lowest, None)


def _prfaas_pd(found: Plan, fixed: Stages) -> Iterator[Figure]:
    at = found.stages
    yield from _counts((4, 3, 5), found)
    yield from _thetas((1.61, 1.64, 3.91), at, fixed)
    yield ("Lambda_max (req/s)", 3.24, at.lambda_max, fixed.lambda_max)
    yield ("p", 0.496, at.offload_fraction, fixed.offload_fraction)
    yield ("l_long (tokens)", 44_000, at.l_long_tokens, fixed.l_long_tokens)
    egress = gbps(at.egress_bytes_per_s), gbps(fixed.egress_bytes_per_s)
    yield ("egress (Gbps)", 13, *egress)
    yield ("TTFT mean (s)", 2.22, found.ttft.prefill_mean_s, None)
    yield ("TTFT P90 (s)", 3.51, found.ttft.prefill_p90_s, None)


def _homogeneous(found: Plan) -> Iterator[Figure]:
    at = found.stages
    yield ("homogeneous N_p", 9, found.n_p, None)
    yield ("homogeneous N_d", 3, found.n_d, None)
    yield ("homogeneous Theta_pd_p", 2.11, at.theta_pd_p, None)
    yield ("homogeneous Theta_pd_d", 2.35, at.theta_pd_d, None)
    yield ("homogeneous Lambda_max", 2.11, found.lambda_max, None)
    yield ("homogeneous TTFT mean (s)", 4.44, found.ttft.prefill_mean_s, None)
    yield ("homogeneous TTFT P90 (s)", 9.73, found.ttft.prefill_p90_s, None)


def _naive(found: Plan) -> Iterator[Figure]:
    at = found.stages
    yield ("naive N_d", 8, found.n_d, None)
    yield ("naive Theta_prfaas", 2.45, at.theta_prfaas, None)
    yield ("naive Theta_pd_d", 6.25, at.theta_pd_d, None)
    yield ("naive Lambda_max", 2.45, found.lambda_max, None)
    yield ("naive TTFT mean (s)", 1.74, found.ttft.prefill_mean_s, None)
    yield ("naive TTFT P90 (s)", 3.51, found.ttft.prefill_p90_s, None)


def _counts(paper: tuple[int, int, int], found: Plan) -> Iterator[Figure]:
    ours = (sum(found.n_prfaas), found.n_p, found.n_d)
    for name, theirs, own in zip(("N_prfaas", "N_p", "N_d"), paper, ours, strict=True):
        yield (name, theirs, own, None)


def _thetas(paper: tuple[float, float, float], at: Stages, fixed: Stages) -> Iterator[Figure]:
    for key, theirs in zip(("theta_prfaas", "theta_pd_p", "theta_pd_d"), paper, strict=True):
        yield (key.replace("theta", "Theta"), theirs, getattr(at, key), getattr(fixed, key))


def _links() -> Iterator[Sequence[str]]:
    case = paper_case()
    lowest = baselines(case.site, case.demand).homogeneous.lambda_max
    yield ("link (Gbps)", "t", "N_p / N_d", "Lambda_max", "ratio", "bottleneck", "exact mean")
    for rate in _LINKS_GBPS:
        remotes = (replace(case.site.remotes[0], egress_bytes_per_s=rate * 1e9 / 8),)
        site = replace(case.site, remotes=remotes)
        found = plan(site, case.demand)
        exact = plan(site, case.demand, expectation=Expectation.EXACT)
        yield (
            f"{rate:g}",
            f"{found.threshold_tokens:,}",
            f"{found.n_p} / {found.n_d}",
            _number(found.lambda_max),
            _number(found.lambda_max / lowest),
            str(found.stages.bottleneck),
            _number(exact.lambda_max),
        )


def _table_5() -> Iterator[Sequence[str]]:
    profile = find_profile("paper-1t-h200")
    yield ("tokens", "S_kv (MiB)", "T_prefill (s)", "Phi_kv paper (Gbps)", "ours", "off by")
    for row in TABLE_5:
        ours = gbps(profile.kv_throughput(row.tokens))
        yield (
            f"{row.tokens // 1024}K",
            f"{profile.kv_bytes.at(row.tokens) / _MIB:.1f}",
            f"{profile.prefill_s.at(row.tokens):.2f}",
            f"{row.phi_gbps:.2f}",
            f"{ours:.2f}",
            f"{ours / row.phi_gbps - 1:+.1%}",
        )


def _table_3() -> Iterator[Sequence[str]]:
    heads = [f"{tokens // 1024}K" for tokens in LENGTHS]
    yield ("model", *heads, "ours (Gbps): " + heads[0], *heads[1:], "512 H200 at 32K (Gbps)")
    for name, row in TABLE_3.items():
        profile = find_profile(name)
        ours = [gbps(profile.kv_throughput(tokens)) for tokens in LENGTHS]
        fleet = gbps(egress_bytes_per_s(512, profile, 32 * 1024))
        yield (
            row.model,
            *(f"{phi:.2f}" for phi in row.phi_gbps),
            *(f"{phi:.2f}" for phi in ours),
            f"{fleet:,.0f}",
        )


def _markdown(rows: Iterator[Sequence[str]]) -> str:
    first, *others = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([first, "|" + "---|" * (first.count("|") - 1), *others])


def _number(value: float) -> str:
    """Return a count or a length without digits after the point, others with two."""
    if value >= 1000:
        return f"{value:,.0f}"
    return (
        f"{value:g}" if isinstance(value, int) else f"{value:.3g}" if value < 1 else f"{value:.2f}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m prfaas_cli.planning_tables",
        description="Print the comparison tables of docs/planning.md, or a file filled with them.",
    )
    parser.add_argument("file", nargs="?", type=Path, help="a file with marks, as planning.md")
    parser.add_argument("--write", action="store_true", help="change the file; needs one")
    return parser


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path}: cannot be read: {error}") from None


def main(arguments: Sequence[str]) -> None:
    """Print the tables, or the filled file; change the file only when told to."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.write and options.file is None:
        parser.error("--write: needs the file to change")
    if options.file is not None:
        text = filled(_read(options.file))
        if options.write:
            options.file.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
        return
    for name, table in tables().items():
        sys.stdout.write(f"{name}\n\n{table}\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
