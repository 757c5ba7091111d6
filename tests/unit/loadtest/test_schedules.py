"""Schedules: what is asked and when, drawn before anything is sent."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from prfaas.errors import ConfigError
from prfaas.workload import parse_trace
from prfaas_loadtest.campaigns import Campaign, campaign_files, parse_campaign
from prfaas_loadtest.campaigns.job import divided
from prfaas_loadtest.workloads import Schedule, make_schedule

HEAD = """
name = "c"
requests = 400
[slo]
ttft_s = 1
tpot_s = 0.1
"""
LENGTHS = "lengths = { mu = 9.90, sigma = 1.00, low = 128, high = 131072 }\noutput_tokens = 8\n"
MOONCAKE = """
{"timestamp": 0, "input_length": 1100, "output_length": 4, "hash_ids": [1, 2, 3]}
{"timestamp": 500, "input_length": 1030, "output_length": 4, "hash_ids": [1, 2, 4]}
{"timestamp": 2000, "input_length": 600, "output_length": 4, "hash_ids": [9, 10]}
"""


def campaign(text: str, **traces: str) -> Campaign:
    parsed = {name: parse_trace(content, name) for name, content in traces.items()}
    return parse_campaign(HEAD + text, source="c.toml", traces=parsed)


def schedule(text: str, requests: int = 400, seed: int = 1, **traces: str) -> Schedule:
    return make_schedule(campaign(text, **traces).workloads, requests=requests, seed=seed)


def test_the_same_seed_gives_the_same_requests_and_another_gives_others() -> None:
    text = f"[[workload]]\nrate_per_s = 2\n{LENGTHS}"
    assert schedule(text) == schedule(text)
    assert schedule(text) != schedule(text, seed=2)


def test_another_rate_brings_the_same_requests_sooner() -> None:
    slow = schedule(f"[[workload]]\nrate_per_s = 2\n{LENGTHS}")
    fast = schedule(f"[[workload]]\nrate_per_s = 4\n{LENGTHS}")
    lengths = [[row.prompt_tokens for row in found.requests] for found in (slow, fast)]
    assert lengths[0] == lengths[1]
    assert fast.span_s == pytest.approx(slow.span_s / 2)
    assert slow.faster(2.0).span_s == pytest.approx(fast.span_s)


@pytest.mark.parametrize(
    "arrivals",
    [
        '{ process = "poisson" }',
        '{ process = "even" }',
        '{ process = "gamma", cv = 3 }',
        '{ process = "onoff", on_s = 10, off_s = 30, burst_factor = 3 }',
        '{ process = "diurnal", period_s = 60, amplitude = 0.5 }',
    ],
)
def test_every_process_has_its_mean_rate(arrivals: str) -> None:
    text = f"[[workload]]\nrate_per_s = 5\narrivals = {arrivals}\n{LENGTHS}"
    found = schedule(text, requests=4000)
    times = [row.at_s for row in found.requests]
    assert times == sorted(times)
    assert found.rate_per_s == pytest.approx(5, rel=0.25)


def test_a_stratified_draw_of_few_has_the_distributions_mean() -> None:
    text = f'[[workload]]\nrate_per_s = 1\ndraw = "stratified"\n{LENGTHS}'
    tokens = np.array([row.prompt_tokens for row in schedule(text, requests=100).requests])
    assert tokens.mean() == pytest.approx(27_486, rel=0.02)
    assert len(set(tokens.tolist())) > 90
    assert tokens.tolist() != sorted(tokens.tolist())


def test_a_mooncake_trace_keeps_times_lengths_and_what_is_shared() -> None:
    text = '[[workload]]\ntrace = "m"\narrivals = { process = "replay", speed = 2 }\n'
    rows = schedule(text, requests=3, m=MOONCAKE).requests
    assert [row.at_s for row in rows] == [0.0, 0.25, 1.0]
    assert [row.prompt_tokens for row in rows] == [1100, 1030, 600]
    assert rows[0].chain[:2] == rows[1].chain[:2] == ((1, 512), (2, 1024))
    with pytest.raises(ConfigError, match="allowed: up to its 3"):
        schedule(text, requests=4, m=MOONCAKE)


def test_an_azure_trace_may_come_at_another_rate() -> None:
    rows = "".join(f"2023-11-16 18:15:{n:02d}.0,{100 + n},{n}\n" for n in range(40))
    text = '[[workload]]\ntrace = "a"\narrivals = { process = "poisson" }\nrate_per_s = 10\n'
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows
    found = schedule(text, requests=40, a=azure)
    assert [row.prompt_tokens for row in found.requests] == list(range(100, 140))
    assert found.requests[0].output_tokens == 1
    assert found.span_s < 10


def test_tenants_share_the_requests_by_their_rates_and_are_drawn_apart() -> None:
    one = f'[[workload]]\ntenant = "a"\nrate_per_s = 3\n{LENGTHS}'
    two = one + f'[[workload]]\ntenant = "b"\nrate_per_s = 1\n{LENGTHS}'
    rows = schedule(two).requests
    assert [row.index for row in rows] == list(range(400))
    assert sum(row.tenant == "a" for row in rows) == 300
    own = [row.prompt_tokens for row in rows if row.tenant == "a"]
    assert own == [row.prompt_tokens for row in schedule(one, requests=300).requests]


def test_later_turns_of_a_conversation_follow_the_turn_before() -> None:
    text = (
        "[[workload]]\nrate_per_s = 2\nlengths = { tokens = 50 }\noutput_tokens = 8\n"
        'sharing = { kind = "conversations", mean_turns = 4, active = 5, think_s = 3 }\n'
    )
    rows = schedule(text).requests
    later = [row for row in rows if row.follows >= 0]
    assert len(later) > 200
    for row in later:
        before = rows[row.follows]
        assert row.chain[:-1] == before.chain
        assert row.prompt_tokens == before.prompt_tokens + 50
        assert row.think_s > 0
    shares = divided(rows, 3)
    assert sorted(row.index for share in shares for row in share) == list(range(400))
    for share in shares:
        known = {row.index for row in share}
        assert all(row.follows in known for row in share if row.follows >= 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "workload = None: allowed: 1 to 1000 tables"),
        (f"[[workload]]\n{LENGTHS}", "workload[0].rate_per_s: missing"),
        ("[[workload]]\nrate_per_s = 1\n", "workload[0].lengths: missing"),
        (
            f'[[workload]]\nrate_per_s = 1\narrivals = {{ process = "x" }}\n{LENGTHS}',
            "workload[0].arrivals.process = 'x': allowed: poisson, even",
        ),
        (
            f'[[workload]]\narrivals = {{ process = "replay" }}\n{LENGTHS}',
            "allowed: replay only with a trace",
        ),
        (
            f"[[workload]]\nrate_per_s = 1\nspeed = 3\n{LENGTHS}",
            "workload[0].speed: unknown key; allowed: tenant",
        ),
        (
            f'[target]\napi = "chat"\n[[workload]]\nrate_per_s = 1\n{LENGTHS}',
            "target.input = None: allowed: text; a chat takes no token ids",
        ),
        (
            f'[target]\nurl = "ftp://x"\n[[workload]]\nrate_per_s = 1\n{LENGTHS}',
            "target.url = 'ftp://x': allowed: http:// or https://",
        ),
    ],
)
def test_a_wrong_campaign_is_one_line_with_file_key_and_what_is_allowed(
    text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        campaign(text)
    assert str(caught.value).startswith("c.toml: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_campaign_names_its_traces() -> None:
    text = '[[workload]]\ntrace = "a.csv"\n[[workload]]\ntrace = "b"\n[[workload]]\ntrace = "b"\n'
    assert campaign_files(HEAD + text, source="c.toml") == ("a.csv", "b")


ROOT = Path(__file__).parents[3]
DOCUMENTED = re.findall(
    r"^```toml\n(.*?)^```", (ROOT / "docs" / "campaigns.md").read_text(), re.DOTALL | re.MULTILINE
)
OURS = [file.read_text() for file in sorted((ROOT / "loadtest" / "campaigns").glob("*.toml"))]


@pytest.mark.parametrize("text", [*DOCUMENTED, *OURS])
def test_the_documented_campaign_and_those_that_we_ship_can_be_drawn(text: str) -> None:
    traces = {}
    for name in campaign_files(text, source="c.toml"):
        content = gzip.decompress((ROOT / "loadtest" / "traces" / name).read_bytes()[: 1 << 24])
        traces[name] = parse_trace(content.decode(), name)
    found = parse_campaign(text, source="c.toml", traces=traces)
    rows = make_schedule(found.workloads, requests=found.requests, seed=found.seed).requests
    assert abs(len(rows) - found.requests) <= len(found.workloads)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('arrivals = { process = "gamma", cv = 1e-300 }', "arrivals: cv: 1e-300: must be from"),
        (
            'arrivals = { process = "onoff", on_s = 1, off_s = 1e308, burst_factor = 2 }',
            "arrivals: on_s, off_s: 1e+308",
        ),
        (
            'sharing = { kind = "system", tokens = [1000000000000000000000000000000] }',
            "sharing: tokens: 1 to",
        ),
        (
            'arrivals = { process = "poisson", cv = 3 }',
            "arrivals.cv = 3: allowed: nothing; poisson takes no more",
        ),
        (
            'arrivals = { process = "gamma", cv = 3, on_s = 3 }',
            "arrivals.on_s = 3: allowed: nothing; gamma takes cv",
        ),
        (
            'sharing = { kind = "conversations", mean_turns = 2, active = 2, zipf = "x" }',
            "sharing.zipf = 'x': allowed: only with tokens",
        ),
        (
            'sharing = { kind = "system", tokens = [3], active = 2 }',
            "sharing.active = 2: allowed: nothing; system takes tokens, zipf",
        ),
    ],
)
def test_what_would_overflow_or_be_ignored_is_refused(row: str, problem: str) -> None:
    text = f"[[workload]]\nrate_per_s = 5\n{row}\nlengths = {{ tokens = 9 }}\noutput_tokens = 3\n"
    with pytest.raises(ConfigError, match=re.escape(problem)):
        schedule(text, requests=20)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:99999", "http://h:x", "http://h:0", "http://[::1", "http://\u2100",
        "http://h?x=1", "http://h#f", "http://user:word@h",
    ],
)  # fmt: skip
def test_an_url_that_cannot_be_asked_is_told_with_the_file(url: str) -> None:
    text = f"[[workload]]\nrate_per_s = 5\n{LENGTHS}"
    with pytest.raises(ConfigError, match=r"target\.url = .*allowed: http:// or https://"):
        schedule(text.replace("[[workload]]", f'[target]\nurl = "{url}"\n[[workload]]'))
