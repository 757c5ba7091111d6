import json
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.workload import Trace, TraceFormat, format_trace, parse_trace

MOONCAKE = """\
{"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 2353]}
{"timestamp": 30535, "input_length": 1024, "output_length": 26, "hash_ids": [46, 47]}
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 23:59:59.5000000,374,44\r
2023-11-17 00:00:01.2500000,396,109\r
"""
RECORDED = """\
{"prfaas_trace": 1, "block_tokens": 64}
{"arrival_s": 5.0, "prompt_tokens": 130, "output_tokens": 8, "blocks": [1, -2], "tenant": "a"}
{"arrival_s": 5.5, "prompt_tokens": 10, "output_tokens": 0}

{"arrival_s": 7.0, "prompt_tokens": 64, "output_tokens": 1, "blocks": [1], "tenant": "a"}
"""


def columns(trace: Trace) -> dict[str, list[float]]:
    names = ("arrival_s", "prompt_tokens", "output_tokens", "block_hashes", "block_offsets")
    return {name: getattr(trace, name).tolist() for name in (*names, "tenant")}


def test_mooncake_is_read() -> None:
    trace = parse_trace(MOONCAKE, "m.jsonl")
    assert columns(trace) == {
        "arrival_s": [0, pytest.approx(3.053)],
        "prompt_tokens": [1100, 1024],
        "output_tokens": [52, 26],
        "block_hashes": [46, 47, 2353, 46, 47],
        "block_offsets": [0, 3, 5],
        "tenant": [0, 0],
    }
    assert (trace.block_tokens, trace.tenant_names) == (512, ("",))
    assert list(trace.chains()) == [((46, 512), (47, 1024)), ((46, 512), (47, 1024))]


def test_azure_is_read() -> None:
    trace = parse_trace(AZURE, "a.csv")
    assert trace.arrival_s.tolist() == [0, 1.75]
    assert trace.prompt_tokens.tolist() == [374, 396]
    assert trace.output_tokens.tolist() == [44, 109]
    assert trace.block_tokens == 0
    assert list(trace.chains()) == [(), ()]


def test_a_time_zone_is_understood() -> None:
    text = AZURE.replace(".5000000", ".5+00:00").replace("00:00:01.2500000", "00:00:01.25+00:00")
    assert parse_trace(text, "a.csv").arrival_s.tolist() == [0, 1.75]


def test_our_own_format_is_read() -> None:
    trace = parse_trace(RECORDED, "r.jsonl")
    assert columns(trace) == {
        "arrival_s": [0, 0.5, 2],
        "prompt_tokens": [130, 10, 64],
        "output_tokens": [8, 0, 1],
        "block_hashes": [1, -2, 1],
        "block_offsets": [0, 2, 2, 3],
        "tenant": [0, 1, 0],
    }
    assert (trace.block_tokens, trace.tenant_names) == (64, ("a", ""))
    assert list(trace.chains()) == [((1, 64), (-2, 128)), (), ((1, 64),)]


def test_figures_of_a_trace() -> None:
    trace = parse_trace(RECORDED, "r.jsonl")
    assert len(trace) == 3
    assert trace.span_s == 2
    assert trace.rate_per_s == 1
    assert parse_trace(MOONCAKE.splitlines()[0], "m").rate_per_s == 0


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm() -> None:
    for text in (MOONCAKE, AZURE, RECORDED):
        changed = "\ufeff" + text.replace("\r", "").replace("\n", "\r\n")
        assert columns(parse_trace(changed, "x")) == columns(parse_trace(text, "x"))


def test_a_given_format_is_not_guessed() -> None:
    with pytest.raises(ConfigError, match=r"x:1: the heading must be TIMESTAMP"):
        parse_trace(MOONCAKE, "x", TraceFormat.AZURE)
    with pytest.raises(ConfigError, match=r"x:1: arrival_s|x:1: prfaas_trace"):
        parse_trace(MOONCAKE, "x", TraceFormat.RECORDED)


def mooncake(**changes: object) -> str:
    row = {"timestamp": 40000, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}
    row.update(changes)
    return MOONCAKE + json.dumps({key: value for key, value in row.items() if value != "gone"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x: empty"),
        ("\n \n", "x: empty"),
        ("hello", "x:1: no known format"),
        ("[1]", "x:1: no known format"),
        ("{}", "x:1: no known format"),
        ("{", "x:1: not JSON"),
        (MOONCAKE + "{", "x:3: not JSON"),
        (MOONCAKE + "[" * 100_000, "x:3: not JSON"),
        (MOONCAKE + "7", "x:3: not a JSON object"),
        (mooncake(timestamp="gone"), "x:3: timestamp: missing"),
        (mooncake(input_length="gone"), "x:3: input_length: missing"),
        (mooncake(timestamp=30534), "x:3: timestamp: 30534: is before the request above; sort"),
        (mooncake(timestamp=-1), "x:3: timestamp: -1: is before"),
        (MOONCAKE.replace("27482", "-1"), "x:1: timestamp: -1: must be from 0"),
        (mooncake(timestamp=10**400), "x:3: timestamp: 1000"),
        (mooncake(timestamp=float("nan")), "x:3: timestamp: nan: must be from 0"),
        (mooncake(timestamp=float("inf")), "x:3: timestamp: inf: must be from 0"),
        (mooncake(timestamp=1e300), "x:3: timestamp: 1e+300: must be from 0"),
        (mooncake(timestamp="9"), "x:3: timestamp: '9': must be a number"),
        (mooncake(timestamp=True), "x:3: timestamp: True: must be a number"),
        (mooncake(input_length=0), "x:3: input_length: 0: must be from 1"),
        (mooncake(input_length=-5), "x:3: input_length: -5: must be from 1"),
        (mooncake(input_length=1 << 40), "x:3: input_length: 1099511627776: must be from 1"),
        (mooncake(input_length=1.5), "x:3: input_length: 1.5: must be a whole number"),
        (mooncake(output_length=None), "x:3: output_length: None: must be a whole number"),
        (mooncake(hash_ids=7), "x:3: hash_ids: 7: must be a list"),
        (mooncake(hash_ids=[1]), None),
        (mooncake(hash_ids=[1, 2, 3]), "x:3: hash_ids: [1, 2, 3]: 3 blocks of 512 tokens do not"),
        (mooncake(hash_ids=[1, 0.5]), "x:3: hash_ids: [1, 0.5]: must be whole numbers"),
        (mooncake(hash_ids=[1, 1 << 63]), "must be whole numbers of 64 bits"),
        (mooncake(hash_ids="gone"), None),
        (AZURE + "2023-11-17 00:00:00,1,1", "x:4: TIMESTAMP: '2023-11-17 00:00:00': is before"),
        (AZURE + "2023-11-16 00:00:00,1,1", "x:4: TIMESTAMP: '2023-11-16 00:00:00': is before"),
        (AZURE + "yesterday,1,1", "x:4: TIMESTAMP: 'yesterday': must be as"),
        (AZURE + "2023-11-17 00:00:02,1", "x:4: 2 cells, not 3"),
        (AZURE + "2023-11-17 00:00:02,nan,1", "x:4: ContextTokens: 'nan': must be a whole number"),
        (AZURE + "2023-11-17 00:00:02,1,-1", "x:4: GeneratedTokens: '-1': must be a whole number"),
        (AZURE + "2023-11-17 00:00:02,0,1", "x:4: ContextTokens: 0: must be from 1"),
        ("TIMESTAMP,A,B\n", "x:1: the heading must be"),
        (AZURE.splitlines()[0], "x: empty"),
        (RECORDED.splitlines()[0], "x: empty"),
        (RECORDED.replace(": 1,", ": 2,", 1), "x:1: prfaas_trace: must be 1"),
        (RECORDED.replace("64}", "-1}"), "x:1: block_tokens: must be a whole number"),
        (RECORDED.replace('"a"', "7", 1), "x:2: tenant: 7: must be a string"),
        (RECORDED.replace("7.0", "5.4"), "x:5: arrival_s: 5.4: is before"),
    ],
)
def test_errors_name_line_and_field(text: str, said: str | None) -> None:
    if said is None:
        assert len(parse_trace(text, "x")) == 3
        return
    with pytest.raises(ConfigError) as caught:
        parse_trace(text, "x")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 200


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    count = draw(st.integers(1, 20))
    block_tokens = draw(st.integers(1, 100))
    prompts = draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count))
    hashes = st.integers(-(1 << 63), (1 << 63) - 1)
    blocks = [
        draw(st.lists(hashes, min_size=tokens // block_tokens, max_size=tokens // block_tokens))
        for tokens in prompts
    ]
    rows = [{"prfaas_trace": 1, "block_tokens": block_tokens}]
    arrivals = np.cumsum(draw(st.lists(st.floats(0, 1e6), min_size=count, max_size=count)))
    for arrival_s, tokens, chain in zip(arrivals.tolist(), prompts, blocks, strict=True):
        row = {"arrival_s": arrival_s, "prompt_tokens": tokens, "output_tokens": 1}
        rows.append({**row, "blocks": chain, "tenant": draw(st.text(max_size=3))})
    return parse_trace("\n".join(map(json.dumps, rows)), "drawn")


@given(traces())
def test_what_is_written_reads_back(trace: Trace) -> None:
    again = parse_trace("".join(format_trace(trace)), "again")
    assert columns(again) == columns(trace)
    assert again.tenant_names == trace.tenant_names
    assert again.block_tokens == trace.block_tokens
    assert list(again.chains()) == list(trace.chains())


@given(st.text(max_size=200))
def test_any_text_is_a_trace_or_a_config_error(text: str) -> None:
    for start in ("", '{"prfaas_trace": 1}\n', AZURE, MOONCAKE):
        with suppress(ConfigError):
            parse_trace(start + text, "x")


def test_twelve_thousand_lines_take_less_than_a_second() -> None:
    row = {"input_length": 12000, "output_length": 1, "hash_ids": list(range(24))}
    lines = [json.dumps({"timestamp": at, **row}) for at in range(12_000)]
    text = "\n".join(lines)
    begin_s = time.process_time()
    trace = parse_trace(text, "x")
    assert time.process_time() - begin_s < 1
    assert trace.block_hashes.nbytes == 12_000 * 24 * 8


def test_columns_must_fit_each_other() -> None:
    good = parse_trace(MOONCAKE, "x")
    fields = {name: getattr(good, name) for name in Trace.__slots__}
    with pytest.raises(ConfigError, match="columns of equal length"):
        Trace(**{**fields, "output_tokens": good.output_tokens[:1]})
    with pytest.raises(ConfigError, match="block_offsets"):
        Trace(**{**fields, "block_hashes": good.block_hashes[:1]})
