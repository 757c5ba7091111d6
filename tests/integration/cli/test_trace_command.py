import gzip
import json
from pathlib import Path

import pytest

from prfaas.errors import ConfigError
from prfaas_cli.app import run_command
from prfaas_cli.trace_file import read_trace

ROWS = [
    {"timestamp": at * 1000, "input_length": tokens, "output_length": 5, "hash_ids": blocks}
    for at, (tokens, blocks) in enumerate(
        [(1100, [1, 2, 3]), (5000, [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]), (1100, [1, 2, 3])]
    )
]
TEXT = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.jsonl"
    file.write_text(TEXT)
    return file


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    words = [str(argument) for argument in arguments]
    code = run_command(words, as_json="--json" in words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_show_gives_one_document(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "trace", "show", trace, "--cache-blocks", 2, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["requests"] == 3
    assert document["rate_per_s"] == 1
    assert document["busiest_minute_per_s"] == pytest.approx(3 / 60)
    assert document["prompt_tokens"]["p50"] == 1100
    assert (document["blocks"], document["distinct_blocks"]) == (16, 11)
    rates = {(hit["cache_blocks"], hit["reuse"]): hit["hit_rate"] for hit in document["hits"]}
    assert rates == pytest.approx(
        {
            (None, "paged"): 2048 / 7200,
            (None, "hybrid"): 2048 / 7200,
            (2, "paged"): 2048 / 7200,
            (2, "hybrid"): 2048 / 7200,
        }
    )


def test_a_trace_without_blocks_has_no_hits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.csv"
    file.write_text(CSV)
    assert "prefix hits are not known" in run(capsys, "trace", "show", file)[1]
    cases = json.loads(run(capsys, "trace", "offload", file, "--json")[1])["cases"]
    assert [case["hits"] for case in cases] == ["none"]


def test_offload_gives_shares_and_plans(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "trace", "offload", trace, "--link", "1gbit", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["link_bytes_per_s"] == 125e6
    assert [case["hits"] for case in document["cases"]] == [
        "none",
        "paged, in both",
        "paged, local only",
        "hybrid, in both",
        "hybrid, local only",
    ]
    for case in document["cases"]:
        assert case["faster"]["requests"] == 0
        assert (case["planned"] is None) == case["hits"].endswith("local only")


def test_a_better_link_is_worth_more(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def faster(link: str) -> float:
        out = run(capsys, "trace", "offload", trace, "--link", link, "--json")[1]
        share: float = json.loads(out)["cases"][0]["faster"]["requests"]
        return share

    assert faster("1gbit") < faster("10gbit") < faster("100gbit") == pytest.approx(1)


def test_a_local_profile_that_cannot_decode_is_not_planned(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("trace", "offload", trace, "--local", "paper-1t-h200")
    assert "not planned: the local profile cannot decode" in run(capsys, *arguments)[1]


def test_gzip_is_read_whatever_its_name(tmp_path: Path, trace: Path) -> None:
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert read_trace(packed).prompt_tokens.tolist() == read_trace(trace).prompt_tokens.tolist()


def test_an_archive_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(b"\n" * (3 << 20)))
    with pytest.raises(ConfigError, match=r"bomb.gz: more than 2 MiB, the limit"):
        read_trace(bomb, max_bytes=2 << 20)
    with pytest.raises(ConfigError, match="empty"):
        read_trace(bomb)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (gzip.compress(TEXT.encode())[:-20], "damaged gzip"),
        (gzip.compress(TEXT.encode())[:10] + b"\x00" * 90, "damaged gzip"),
        (b"\x1f\x8bxx", "t.gz"),
        (b"{}\n\xff\n", "t.gz:2: not UTF-8"),
        (TEXT.encode() + b"{", "t.gz:4: not JSON"),
        (TEXT.replace("2000", "-1").encode(), "t.gz:3: timestamp: -1"),
    ],
)
def test_a_damaged_file_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    file = tmp_path / "t.gz"
    file.write_bytes(content)
    code, out, err = run(capsys, "trace", "show", file)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trace"], "command is missing"),
        (["trace", "show"], "'file'"),
        (["trace", "show", "/no/such"], "/no/such: No such file"),
        (["trace", "show", "/"], "/: Is a directory"),
        (["trace", "show", "TRACE", "--cache-blocks", "-1"], "--cache-blocks"),
        (["trace", "show", "TRACE", "--state-blocks", "-1"], "--state-blocks"),
        (["trace", "offload", "TRACE", "--local", "no-such"], "no-such"),
        (["trace", "offload", "TRACE", "--remote", "no-such"], "no-such"),
        (["trace", "offload", "TRACE", "--link", "fast"], "--link"),
        (["trace", "offload", "TRACE", "--rtt", "20"], "--rtt"),
        (["trace", "offload", "TRACE", "--tpot", "0ms"], "tpot"),
        (["trace", "offload", "TRACE", "--local-instances", "1"], "--local-instances"),
        (["trace", "offload", "TRACE", "--remote-instances", "0"], "--remote-instances"),
    ],
)
def test_wrong_arguments_are_said_in_one_line(
    trace: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    words = [str(trace) if word == "TRACE" else word for word in arguments]
    code, _, err = run(capsys, *words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_tpot_that_nothing_keeps_is_refused(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "trace", "offload", trace, "--tpot", "1ms")
    assert (code, out) == (2, "")
    assert "--tpot 1ms: allowed: 25ms or more, the decode step of paper-1t-h20" in err
