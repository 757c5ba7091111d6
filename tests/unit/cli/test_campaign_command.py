"""`prfaasctl campaign`: what is wrong is one line, with the right exit code."""

import json
from pathlib import Path

import pytest

from prfaas.errors import ConfigError
from prfaas_cli import campaign_results
from prfaas_cli.app import run_command

CAMPAIGN = """
name = "c"
requests = 3
[target]
{target}
[slo]
ttft_s = 1
tpot_s = 1
[[workload]]
rate_per_s = 1
lengths = {{ tokens = 5 }}
output_tokens = 2
"""


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("", 1, "nothing is deployed as default"),
        ('url = "nowhere"', 2, "target.url = 'nowhere': allowed: http://"),
        ('url = "http://x"\napi_key_env = "NO_SUCH_KEY"', 2, "'NO_SUCH_KEY': not in the environ"),
        ('url = "http://x"\napi_key_file = "none.key"', 2, "none.key: No such file"),
        ('url = "http://x"\napi_key_file = "c.toml"', 2, "c.toml: not an API key"),
        (
            'url = "http://x"\napi_key_env = "A"\napi_key_file = "b"',
            2,
            "target.api_key_file = 'b': allowed: left out",
        ),
        ('url = "http://x"\ninput = "text"', 2, "target.tokenizer = None: allowed: with text"),
    ],
)
def test_what_cannot_run_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, code: int, said: str
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(CAMPAIGN.format(target=target))
    arguments = ["campaign", "run", str(file), "--out", str(tmp_path / "run")]
    assert run_command([*arguments, "--state-dir", str(tmp_path)], as_json=False) == code
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_file_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["campaign", "run", str(tmp_path / "no.toml")], as_json=False) == 2
    assert "no.toml" in capsys.readouterr().err


def test_results_never_overwrite_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(CAMPAIGN.format(target='url = "http://127.0.0.1:1"'))
    arguments = ["campaign", "run", str(file), "--out", str(tmp_path)]
    assert run_command(arguments, as_json=False) == 1
    assert "not empty; give another --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


def test_a_folder_that_is_no_run_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["campaign", "compare", str(tmp_path), str(tmp_path)], as_json=False) == 1
    assert "not the folder of a run of a campaign" in capsys.readouterr().err


@pytest.mark.parametrize("master", ["", "host", "host:x", ":5", "host:70000"])
def test_a_worker_needs_an_address(master: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["campaign", "worker", "--master", master], as_json=False) == 2
    assert "allowed: HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["inf", "1e308"])
def test_a_rate_that_no_sender_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: str
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(CAMPAIGN.format(target='url = "http://127.0.0.1:1"'))
    arguments = ["campaign", "run", str(file), "--out", str(tmp_path / "run"), "--rate", rate]
    assert run_command(arguments, as_json=False) == 2
    assert "allowed: at most 1e+06 per second" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ('case = "nosuch"', "allowed: paper, or the path of a TOML file"),
        ('case = "paper"\nn_p = 99', "n_p = 99: allowed: 0 (min_prefill) to 7"),
    ],
)
def test_a_plan_that_cannot_be_is_told_before_anything_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: str, said: str
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(CAMPAIGN.format(target=f'url = "http://127.0.0.1:1"\n[plan]\n{plan}'))
    arguments = ["campaign", "run", str(file), "--out", str(tmp_path / "run")]
    assert run_command(arguments, as_json=False) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_prediction_that_fails_loses_no_measurement(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ConfigError("the schedule does not fit")

    monkeypatch.setattr(campaign_results, "predict", broken)
    file = tmp_path / "c.toml"
    url = 'url = "http://127.0.0.1:1"'
    file.write_text(CAMPAIGN.format(target=url).replace("requests = 3", "requests = 1"))
    arguments = ["campaign", "run", str(file), "--out", str(tmp_path / "run"), "--rate", "1000"]
    with pytest.raises(SystemExit, match="1"):  # nobody answers there
        run_command([*arguments, "--json"], as_json=True)
    said = capfd.readouterr()
    assert "no prediction: the schedule does not fit" in said.err
    assert json.loads(said.out)["measured"]["outcomes"] == {"broken": 1}
    assert (tmp_path / "run" / "report.html").exists()


def test_of_two_runs_at_once_only_one_has_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's first file comes just after the look whether the folder is empty."""
    file, out = tmp_path / "c.toml", tmp_path / "run"
    file.write_text(CAMPAIGN.format(target='url = "http://127.0.0.1:1"'))
    out.mkdir()
    (out / "campaign.toml").write_text("of the other")
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(()))
    assert run_command(["campaign", "run", str(file), "--out", str(out)], as_json=False) == 1
    assert "File exists" in capsys.readouterr().err
    assert (out / "campaign.toml").read_text() == "of the other"
