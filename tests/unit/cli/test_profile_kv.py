import json
import re
from pathlib import Path

import pytest

from prfaas.errors import ConfigError
from prfaas_cli.main import run
from prfaas_cli.profile_kv import parse_lengths

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "tests" / "data" / "model-configs"
QWEN = str(CONFIGS / "qwen3-next-80b-a3b.json")


def test_the_table_says_layers_and_sizes_with_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "kv", "--config", QWEN, "--lengths", "1k,2000"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Qwen3NextForCausalLM: 36 GDN, 12 GQA (dtypes: kv bfloat16, ssm float32, conv bfloat16)",
        "per token:    24,576 B",
        "per request:  77,266,944 B (ssm 75,497,472, conv 1,769,472, window 0)",
        "",
        "TOKENS  S_KV       BYTES        HELD BY SGLANG AT TP 1",
        "1K      97.7 MiB   102,432,768  97.7 MiB",
        "2000    120.6 MiB  126,418,944  120.6 MiB",
    ]


def test_json_holds_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--lengths",
        "1k",
        "--tp",
        "8",
        "--kv-dtype",
        "fp8_e4m3",
        "--ssm-dtype",
        "bfloat16",
    ]
    assert run(["profile", "kv", "--config", QWEN, "--json", *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "architecture": "Qwen3NextForCausalLM",
        "layers": {"GDN": 36, "GQA": 12},
        "dtypes": {"kv": "fp8_e4m3", "ssm": "bfloat16", "conv": "bfloat16"},
        "bytes_per_token": 12_288,
        "fixed_bytes": 39_518_208,
        "ssm_bytes": 37_748_736,
        "conv_bytes": 1_769_472,
        "window_bytes": 0,
        "tp": 8,
        "lengths": [
            {
                "tokens": 1024,
                "kv_bytes": 39_518_208 + 1024 * 12_288,
                "physical_bytes": 39_518_208 + 1024 * 12_288 * 4,
            }
        ],
    }


def test_a_model_directory_stands_for_its_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(Path(QWEN).read_text())
    assert run(["profile", "kv", "--config", str(tmp_path)]) == 0
    assert "36 GDN" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 200_000, "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "architectures is missing"),
        ('{"architectures": ["Odd"]}', "'Odd' is not known"),
        ('{"architectures": ["LlamaForCausalLM"]}', "num_attention_heads is missing"),
        ('{"model_type": "llama", "num_attention_heads": NaN}', "num_attention_heads is nan"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    path = tmp_path / "model.json"
    if content is not None:
        path.write_text(content)
    assert run(["profile", "kv", "--config", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert str(path) in captured.err
    assert words in captured.err


def test_a_file_of_bytes_is_no_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00\xd8")
    assert run(["profile", "kv", "--config", str(tmp_path)]) == 2
    assert "config.json: not JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lengths", ""], "--lengths ''"),
        (["--lengths", "1k,x"], "--lengths 'x'"),
        (["--lengths", "0"], "--lengths '0'"),
        (["--lengths", "-1k"], "--lengths '-1k'"),
        (["--lengths", "1.5k"], "--lengths '1.5k'"),
        (["--lengths", "²k"], "--lengths '²k'"),
        (["--lengths", "9" * 5000], "--lengths '999"),
        (["--kv-dtype", "int4"], "--kv-dtype int4"),
        (["--ssm-dtype", "fp8_e4m3"], "--ssm-dtype fp8_e4m3"),
        (["--conv-dtype", "x"], "--conv-dtype x"),
        (["--tp", "0"], "--tp 0"),
        (["--tp", "3"], "--tp 3"),
        (["--tp", "x"], "--tp"),
    ],
)
def test_a_bad_option_is_one_line_that_names_it(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(["profile", "kv", "--config", QWEN, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_lengths_are_tokens_and_k_is_1024() -> None:
    assert parse_lengths("1k, 8K,2000") == [1024, 8192, 2000]
    with pytest.raises(ConfigError):
        parse_lengths("1k,,2k")


def documented_rows() -> list[list[str]]:
    """Return the model table of docs/kv-geometry.md."""
    text = (ROOT / "docs" / "kv-geometry.md").read_text()
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"\|.*\|", text)]
    return [row for row in rows if (CONFIGS / f"{row[0]}.json").exists()]


def test_the_documented_table_is_what_the_command_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = documented_rows()
    assert {row[0] for row in rows} == {path.stem for path in CONFIGS.glob("*.json")}
    for row in rows:
        run(["profile", "kv", "--config", str(CONFIGS / f"{row[0]}.json"), "--json"])
        document = json.loads(capsys.readouterr().out)
        layers = ", ".join(f"{count} {kind}" for kind, count in document["layers"].items())
        said = [layers, f"{document['bytes_per_token']:,}", f"{document['fixed_bytes']:,}"]
        said += [f"{entry['kv_bytes'] / (1 << 20):.1f}" for entry in document["lengths"]]
        assert row[1:] == said
