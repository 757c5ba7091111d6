import json
import re

import pytest

from prfaas.errors import ConfigError
from prfaas.planning import CaseFiles, TtftGoal, case_files, parse_case
from prfaas.planning.paper import PAPER_CASE
from prfaas.profile.catalog import find_profile
from prfaas.profile.document import render_profile
from prfaas.workload import TruncatedLogNormal, mean_of
from prfaas.workload.trace_text import parse_trace


def test_the_papers_case() -> None:
    case = parse_case(PAPER_CASE, source="paper")
    (remote,) = case.site.remotes
    assert (remote.instances, remote.egress_bytes_per_s, remote.link_share) == (4, 12.5e9, 1.0)
    assert (case.site.pd.instances, case.site.homogeneous_instances) == (8, 12)
    assert case.demand.lengths == TruncatedLogNormal(9.90, 1.00, 128, 131072)
    assert (case.demand.output_tokens, case.demand.tpot_s) == (1024, 0.025)
    assert case_files(PAPER_CASE, source="paper") == CaseFiles((), None)


def test_everything_that_a_case_can_say() -> None:
    text = PAPER_CASE.replace('link = "100gbit"', 'link = "40gbit"\nlink_share = 0.5')
    text = text.replace("tpot_s = 0.025", "tpot_s = 0.03\nttft_s = 5\nttft_quantile = 0.9")
    text += """
[constraints]
threshold_step_tokens = 50
min_prfaas = 1
min_prefill = 2
min_decode = 3
link_share = 0.8
max_cost_per_hour = 15
[[prfaas]]
name = "second"
profile = "paper-1t-h200"
instances = 1
link = "10gbit"
"""
    case = parse_case(text, source="x.toml")
    first, second = case.site.remotes
    assert first.usable_bytes_per_s == 2.5e9
    assert (second.name, second.egress_bytes_per_s) == ("second", 1.25e9)
    held = case.constraints
    assert held.ttft == TtftGoal(5, 0.9)
    assert (held.threshold_step_tokens, held.link_share, held.max_cost_per_hour) == (50, 0.8, 15)
    assert (held.min_prfaas, held.min_prefill, held.min_decode) == (1, 2, 3)


def test_profiles_and_a_trace_come_from_files_that_the_shell_reads() -> None:
    text = PAPER_CASE.replace('"paper-1t-h20"', '"ours/h20.json"').replace("[slo]", "[slo]")
    text = re.sub(r"lengths = .*", 'trace = "seen.jsonl"', text)
    text = text.replace("output_tokens = 1024\n", "")
    assert case_files(text, source="x.toml") == CaseFiles(("ours/h20.json",), "seen.jsonl")
    rows = [
        {"arrival_s": 0, "prompt_tokens": 8, "output_tokens": 5, "blocks": [1, 2]},
        {"arrival_s": 1, "prompt_tokens": 12, "output_tokens": 7, "blocks": [1, 2, 3]},
    ]
    lines = map(json.dumps, [{"prfaas_trace": 1, "block_tokens": 4}, *rows])
    read = {
        "profiles": {"ours/h20.json": render_profile(find_profile("paper-1t-h20"))},
        "trace": parse_trace("\n".join(lines), "seen.jsonl"),
    }
    case = parse_case(text, source="x.toml", **read)
    assert case.demand.output_tokens == 6
    assert mean_of(case.demand.lengths) == (8 + 4) / 2
    uncached = parse_case(text.replace("[slo]", 'reuse = "none"\n[slo]'), source="x.toml", **read)
    assert mean_of(uncached.demand.lengths) == (8 + 12) / 2


BAD = [
    ("instances = 4 ", "instances = 0 ", r"prfaas\[0\].instances = 0: allowed: a whole number, 1"),
    ("instances = 4 ", "instances = 4.5 ", r"prfaas\[0\].instances = 4.5"),
    ("instances = 8 ", "instances = true ", "pd.instances = True"),
    ('"100gbit"', '"fast"', r"prfaas\[0\].link = 'fast': allowed: a number and bit"),
    ('"100gbit"', '"0gbit"', r"prfaas\[0\].link = '0gbit': allowed: 1kbit to 1tbit"),
    ('"100gbit"', "100", r"prfaas\[0\].link = 100: allowed: a line of text"),
    ('"100gbit"', '"1gbit"\nlink_share = 1.5', r"link_share = 1.5: allowed: a number above 0"),
    ('"100gbit"', '"1gbit"\nlink_share = 0', r"link_share = 0: allowed"),
    ('"paper-1t-h200"', '"h100"', r"prfaas\[0\].profile = 'h100': allowed: .*paper-1t-h200"),
    ('"paper-1t-h20"', '"paper-1t-h200"', "pd.profile = 'paper-1t-h200': allowed: .*can decode"),
    ("output_tokens = 1024", "output_tokens = -1", "requests.output_tokens = -1: allowed"),
    ("output_tokens = 1024", "output_tokens = nan", "requests.output_tokens = nan: allowed"),
    ("output_tokens = 1024\n", "", "requests.output_tokens: missing"),
    ("sigma = 1.00", "sigma = 0", "requests.lengths: sigma: 0.0: must be"),
    ("sigma = 1.00", "sigma = inf", "requests.lengths.sigma = inf: allowed: a finite number"),
    ("high = 131072", "high = 1", "requests.lengths: .*need 1 <= low < high"),
    ("low = 128, ", "", "requests.lengths.low: missing"),
    ("lengths = {", "length = {", "requests.length: unknown key; allowed: output_tokens, lengths"),
    ("[slo]", 'reuse = "paged"\n[slo]', "requests.reuse = 'paged': allowed: only with a trace"),
    ("[slo]", 'trace = "t"\n[slo]', "requests.trace = 't': allowed: either a trace or lengths"),
    ("tpot_s = 0.025", "tpot_s = inf", "slo.tpot_s = inf: allowed: a finite number above 0"),
    ("tpot_s = 0.025", "tpot_s = 0.02", "slo.tpot_s = 0.02: allowed: 0.025 or more"),
    ("tpot_s = 0.025", "tpot_s = 0.025\nttft_s = 0", "slo.ttft_s = 0: allowed"),
    ("tpot_s = 0.025", "tpot_s = 1\nttft_quantile = 0.9", "ttft_quantile = 0.9: allowed: only"),
    ('"8x H20" = 1.0', '"8x H20" = -1.0', "prices.8x H20 = -1.0: allowed: a finite number, 0"),
    ("[prices]", "[constraints]\nmin_decode = -1\n[prices]", "constraints.min_decode = -1"),
    ("[prices]", "[constraints]\nthreshold_step_tokens = 0\n[prices]", "threshold_step_tokens = 0"),
    ("[prices]", "[constraints]\nlink_share = 2\n[prices]", "constraints.link_share = 2"),
    ('"8x H20" = 1.0', "[constraints]\nmax_cost_per_hour = 9", "max_cost_per_hour = 9: allowed:"),
    ('"8x H20" =', '"8xH20" =', "prices.8xH20: unknown key; allowed: 8x H200, 8x H20$"),
    ('"8x H20" = 1.0', "[constraints]\nmax_cost_per_hour = 9", 'lacks "8x H20"'),
    ('name = "pd"', 'name = "prfaas"', "names must differ"),
    ("homogeneous_instances = 12", "homogeneous_instances = 1", "homogeneous_instances = 1"),
    ("[pd]", "[pdd]", "pdd: unknown key"),
    ("[[prfaas]]", "[prfaas]", "prfaas = .*allowed: tables, each headed"),
    ("[slo]", "slo = 1\n[x]", "slo"),
    ("[slo]", "[slo", "not valid TOML"),
]


@pytest.mark.parametrize(("old", "new", "said"), BAD)
def test_a_bad_value_is_one_line_that_names_file_key_value_and_what_is_allowed(
    old: str, new: str, said: str
) -> None:
    assert old in PAPER_CASE
    text = PAPER_CASE.replace(old, new, 1)
    with pytest.raises(ConfigError, match=said) as error:
        parse_case(text, source="x.toml")
    assert str(error.value).startswith("x.toml: ")
    assert str(error.value).count("x.toml") == 1
    assert "\n" not in str(error.value)


def test_an_unknown_reuse_of_a_trace_is_named() -> None:
    text = re.sub(r"lengths = .*", 'trace = "seen.jsonl"\nreuse = "some"', PAPER_CASE)
    trace = parse_trace(
        '{"prfaas_trace": 1}\n{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}', "x"
    )
    with pytest.raises(ConfigError, match=r"requests.reuse = 'some': allowed: paged, hybrid, none"):
        parse_case(text, source="x.toml", trace=trace)


def test_a_trace_that_was_not_read_is_no_case() -> None:
    text = re.sub(r"lengths = .*", 'trace = "seen.jsonl"', PAPER_CASE)
    with pytest.raises(ConfigError, match=r"requests.lengths: missing"):
        parse_case(text, source="x.toml")
