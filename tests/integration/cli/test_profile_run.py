"""`profile run` against a server whose times are known."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_plain_engine import CONFIG, KV_BYTES_PER_TOKEN, PlainEngine

from prfaas.profile import Origin
from prfaas.profile.document import parse_document
from prfaas_cli.main import run

#: What a loaded machine may add to a sleep.
SLACK_S = 0.1

MakeEngine = Callable[..., PlainEngine]
QUICK = ("--lengths", "128,1k", "--batches", "1,4", "--repeat", "2", "--output-tokens", "8")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    return directory


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "out.json"


def measure(engine: PlainEngine, file: Path, *arguments: str) -> int:
    return run(["profile", "run", "--url", engine.url, "--output", str(file), *arguments])


def test_what_is_measured_is_what_the_server_takes(
    model: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PlainEngine(str(model)) as engine:
        assert measure(engine, file, *QUICK, "--hardware", "2x Toy", "--json") == 0
    out, err = capsys.readouterr()
    document = parse_document(file.read_bytes(), "out")
    profile = document.profile
    for tokens in (128, 1024):
        over_s = profile.prefill_s.at(tokens) - engine.prefill_s(tokens)
        assert 0 <= over_s < SLACK_S
    assert profile.decode is not None
    for batch in (1, 4):
        assert 0 <= profile.decode.step_s.at(batch) - engine.step_s(batch) < SLACK_S
    assert profile.kv_bytes.at(5000) == 5000 * KV_BYTES_PER_TOKEN
    assert (profile.hardware, profile.gpus, profile.decode.max_batch) == ("2x Toy", 2, 4)
    assert profile.origin is Origin.MEASURED
    how = document.provenance
    assert dict(how.versions)["sglang"] == "0.5.23"
    assert how.complete
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", how.measured_at)
    assert how.machine.memory_bytes > 0
    assert [sample.tokens for sample in how.samples.prefill] == [128, 128, 1024, 1024]
    assert [sample.batch for sample in how.samples.decode] == [1, 1, 4, 4]
    shown = json.loads(out)
    assert shown["file"] == str(file)
    assert shown["lengths"][0]["prefill_s"] == profile.prefill_s.at(1024)
    assert "prefill of 1024 tokens: " in err
    assert "decode of 4 at once: " in err


def test_prompts_are_all_different_and_of_the_vocabulary(model: Path, file: Path) -> None:
    """An id outside the vocabulary kills a real server; a repeated prompt is cached."""
    with PlainEngine(str(model)) as engine:
        assert measure(engine, file, *QUICK) == 0
    prompts = [body["input_ids"] for body in engine.requests]
    assert all(0 <= token < CONFIG["vocab_size"] for prompt in prompts for token in prompt)
    assert len({tuple(prompt[:8]) for prompt in prompts}) == len(prompts)
    asked = [body["sampling_params"]["max_new_tokens"] for body in engine.requests]
    assert asked[1:5] == [1] * 4, "prefill is timed without any decode step"
    assert all(body["sampling_params"]["ignore_eos"] for body in engine.requests)


def test_ctrl_c_keeps_what_was_measured(model: Path, file: Path) -> None:
    with PlainEngine(str(model)) as engine:
        command = [sys.executable, "-m", "prfaas_cli", "profile", "run", "--url", engine.url]
        command += ["--lengths", "128,4000", "--repeat", "50", "--output", str(file)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if "prefill of 128" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        process.stderr.close()
        assert process.wait(20) == 130
    assert re.search(r"cut short: [12] of 2 lengths and 0 of 5 batches are saved in", rest)
    assert rest.endswith("prfaasctl: error: interrupted\n")
    assert "Traceback" not in rest
    document = parse_document(file.read_bytes(), "out")
    assert not document.provenance.complete
    assert document.profile.decode is None
    assert len(document.provenance.samples.prefill) >= 50


def test_a_server_that_goes_away_leaves_what_was_measured(
    model: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PlainEngine(str(model), fail_after=4) as engine:
        assert measure(engine, file, *QUICK) == 1
    err = capsys.readouterr().err
    assert "cut short: 2 of 2 lengths" in err
    assert err.splitlines()[-1].startswith(f"prfaasctl: error: {engine.url}: the server broke off")
    assert not parse_document(file.read_bytes(), "out").provenance.complete


def test_nothing_measured_leaves_no_file(
    model: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PlainEngine(str(model), fail_after=0, failure="too\nbusy") as engine:
        assert measure(engine, file, *QUICK) == 1
    err = capsys.readouterr().err
    assert "nothing was measured" in err
    assert err.endswith("refuses a prompt of 128 tokens: too busy\n")
    assert not file.exists()


def test_a_batch_that_never_runs_at_once_is_left_out(
    model: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PlainEngine(str(model), at_once=2) as engine:
        assert measure(engine, file, *QUICK) == 0
    assert "decode batch 4: the server did not run so many at once" in capsys.readouterr().err
    profile = parse_document(file.read_bytes(), "out").profile
    assert profile.decode is not None
    assert profile.decode.max_batch == 1


def test_cached_prompts_are_refused(
    model: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PlainEngine(str(model), cached_share=0.5) as engine:
        assert measure(engine, file, *QUICK) == 1
    assert "--disable-radix-cache" in capsys.readouterr().err


def test_without_options_it_measures_what_fits(
    model: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = {"max_req_input_len": 1500, "max_running_requests": 3}
    with PlainEngine(str(model), server_info=info) as engine:
        assert measure(engine, file, "--repeat", "1") == 0
    samples = parse_document(file.read_bytes(), "out").provenance.samples
    assert [sample.tokens for sample in samples.prefill] == [128, 256, 512, 1024, 1499]
    assert [sample.batch for sample in samples.decode] == [1, 2]
    assert {sample.context_tokens for sample in samples.decode} == {375}


def test_the_file_is_named_after_the_model(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model.parent)
    with PlainEngine(str(model), model_info={"served_model_name": "org/My Model"}) as engine:
        arguments = ["profile", "run", "--url", engine.url, *QUICK]
        assert run(arguments) == 0
        assert Path("My-Model.profile.json").is_file()
        assert run(arguments) == 2
    assert "My-Model.profile.json exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "arguments", "expected"),
    [
        ({}, ("--lengths", "8k"), "takes prompts of 4089 tokens at most; leave it out"),
        ({}, ("--lengths", "x"), "--lengths 'x'"),
        ({}, ("--batches", "1,17"), "--batches 17: the server runs 16 requests"),
        ({}, ("--batches", "0"), "--batches '0'"),
        ({}, ("--batches", "9" * 5000), "--batches '999"),
        ({}, ("--repeat", "0"), "--repeat 0: allowed is 1 to 100"),
        ({}, ("--output-tokens", "1"), "--output-tokens 1: allowed is 4"),
        ({}, ("--context", "9k"), "--context and --output-tokens: 9248 tokens"),
        ({}, ("--context", ""), "--context ''"),
        ({}, ("--timeout", "nan"), "--timeout nan"),
        ({}, ("--hardware", "a\nb"), "--hardware"),
        ({}, ("--config", "/nowhere"), "--config /nowhere: No such file"),
        ({}, ("--output", "/nowhere/p.json"), "--output /nowhere/p.json: /nowhere is not a dir"),
        ({}, ("--output", "/tmp"), "--output /tmp: is a directory"),
        ({}, ("--url", "localhost:30000"), "--url 'localhost:30000': allowed: http://host:port"),
        ({}, ("--url", "http://x:99999"), "--url 'http://x:99999': allowed: http://host:port"),
        ({}, ("--url", "http://127.0.0.1:1"), "no server answers: Connection refused; is it up?"),
        ({"model_info": {"model_path": "org/model"}}, (), "--config: the server's model"),
        ({"model_info": {"model_path": None}}, (), "not an SGLang server"),
        ({"model_info": {"disaggregation_mode": "decode"}}, (), "serves 'decode' only"),
        ({"server_info": {"kv_cache_dtype": "fp4_e2m1"}}, (), "--kv-dtype fp4_e2m1"),
    ],
)
def test_it_refuses_in_one_line_before_it_measures(
    model: Path,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    with PlainEngine(str(model), **changes) as engine:
        assert measure(engine, file, *arguments) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1
    assert not engine.requests
    assert not file.exists()


def test_a_server_that_takes_too_long(
    model: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PlainEngine(str(model), prefill_base_s=1.0) as engine:
        assert measure(engine, file, *QUICK, "--timeout", "0.5") == 1
    assert "no answer within 0.5 s; a larger --timeout may help" in capsys.readouterr().err


def test_another_kind_of_server_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Other(PlainEngine):
        def answer(self, path: str) -> dict[str, Any] | None:
            return None

    with Other("") as server:
        assert measure(server, file) == 2
    assert "not an SGLang server: it has no /model_info" in capsys.readouterr().err
