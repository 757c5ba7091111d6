import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

GOOD_NODE = """
[node]
name = "a-prefill-0"
role = "prefill"
region = "a"
port = 30000
[engine]
model_path = "/nowhere"
bootstrap_port = 30100
"""


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["bogus"], 2, "bogus"),
        (["deploy"], 2, "--regions"),
        (["deploy", "--regions", "a"], 2, "--regions"),
        (["deploy", "--regions", "a,a"], 2, "twice"),
        (["deploy", "--regions", "A,b"], 2, "'A'"),
        (["deploy", "--regions", "a,b", "--port", "0"], 2, "--port 0"),
        (["deploy", "--regions", "a,b", "--port", "x"], 2, "--port"),
        (["deploy", "--regions", "a,b", "--threshold", "-5"], 2, "--threshold -5"),
        (["deploy", "--regions", "a,b", "--timeout", "nan"], 2, "--timeout nan"),
        (["deploy", "--regions", "a,b", "--timeout", "inf"], 2, "--timeout inf"),
        (["deploy", "--regions", "a,b", "--timeout", "0"], 2, "--timeout 0"),
        (["deploy", "--regions", "a,b", "--dtype", "int8"], 2, "--dtype int8"),
        (["deploy", "--regions", "a,b", "--link-rate", "fast"], 2, "--link-rate"),
        (["deploy", "--regions", "a,b", "--link-rtt", "20"], 2, "--link-rtt"),
        (["deploy", "--regions", "a,b", "--name", "../x"], 2, "../x"),
        (["status"], 1, "nothing is deployed"),
        (["status", "--name", "UP"], 2, "UP"),
        (["link"], 2, "command is missing"),
        (["link", "show"], 1, "nothing is deployed"),
        (["link", "set", "a-b"], 2, "nothing to set"),
        (["link", "set", "a-b", "--rtt", "x"], 2, "--rtt"),
        (["link", "set", "a-b", "--rtt", "20ms", "--delay", "1ms"], 2, "--delay"),
        (["link", "set", "a-b", "--loss", "2"], 2, "--loss"),
        (["link", "set", "a-b", "--rtt", "20ms"], 1, "nothing is deployed"),
        (["chat", "hi"], 1, "nothing is deployed"),
        (["chat"], 2, "prompt"),
        (["chat", "hi", "--url", "http://127.0.0.1:1"], 1, "does not answer"),
        (["chat", "hi", "--url", "ftp://x"], 2, "--url"),
        (["chat", "hi", "--max-tokens", "0"], 2, "--max-tokens"),
        (["chat", "hi", "--timeout", "-1"], 2, "--timeout"),
        (["chat", "hi", "--repeat-to", "9", "--url", "http://127.0.0.1:1"], 2, "--repeat-to"),
        (["node", "run", "decode"], 2, "--config"),
        (["node", "run", "decode", "--config", "/no/such"], 2, "/no/such"),
        (["node", "check", "--config", "/no/such"], 2, "/no/such"),
    ],
)
def test_a_wrong_input_is_one_line_and_leaves_nothing(
    prfaasctl: Run, tmp_path: Path, arguments: list[str], code: int, word: str
) -> None:
    done = prfaasctl(*arguments)
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("prfaasctl: error: ")
    assert word in lines[0]
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.parametrize("missing", ["no-such-model", "/no/such/model"])
def test_a_missing_model_stops_deploy_before_it_makes_anything(
    prfaasctl: Run, tmp_path: Path, missing: str
) -> None:
    done = prfaasctl("deploy", "--regions", "a,b", "--model", missing, "--port", "18711")
    assert done.returncode == 3
    assert missing in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_a_port_in_use_and_a_broken_model_are_told_together(prfaasctl: Run, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = prfaasctl(
            "deploy",
            "--regions",
            "a,b",
            "--port",
            port,
            "--model",
            str(tmp_path / "model"),
            "--json",
        )
    assert done.returncode == 3
    problems = json.loads(done.stdout)["problems"]
    assert [word for word in ("tokenizer.json", port) if any(word in p for p in problems)]
    assert len(problems) == 2
    assert not (tmp_path / "s").exists()


def test_an_error_with_json_is_one_document_on_stdout(prfaasctl: Run) -> None:
    done = prfaasctl("status", "--json")
    assert done.returncode == 1
    assert "nothing is deployed" in json.loads(done.stdout)["error"]


def test_destroy_of_nothing_is_no_error_and_leaves_nothing(prfaasctl: Run, tmp_path: Path) -> None:
    done = prfaasctl("destroy", "--name", "clitest", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "nothing deployed"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (('role = "prefill"', 'role = "cook"'), "node.role"),
        (('role = "prefill"', 'role = "decode"'), "asked to run prefill"),
        (("port = 30000", "port = 70000"), "node.port"),
        (("port = 30000", 'port = "x"'), "node.port"),
        (("bootstrap_port = 30100", ""), "bootstrap_port"),
        (("[engine]", "[engine]\nbogus = 1"), "engine.bogus"),
        (("[engine]", "[engin]"), "engin"),
        (("[node]", "[node"), "TOML"),
    ],
)
def test_a_wrong_config_names_the_key(
    prfaasctl: Run, tmp_path: Path, change: tuple[str, str], word: str
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(GOOD_NODE.replace(*change))
    done = prfaasctl("node", "run", "prefill", "--config", str(path))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(path) in done.stderr
    assert word in done.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["node.toml"]


def test_a_node_refuses_a_missing_model(prfaasctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(GOOD_NODE.replace('region = "a"', f'region = "a"\nstate_dir = "{tmp_path}"'))
    done = prfaasctl("node", "run", "prefill", "--config", str(path))
    assert done.returncode == 3
    assert "model directory /nowhere does not exist" in done.stderr


def test_a_state_directory_below_a_file_is_one_line(prfaasctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    state = f'region = "a"\nstate_dir = "{path}/x"'
    path.write_text(GOOD_NODE.replace('region = "a"', state))
    done = prfaasctl("node", "run", "prefill", "--config", str(path))
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("prfaasctl: error: node.state_dir ")
    assert "Traceback" not in done.stderr


def test_help_comes_at_once() -> None:
    times = []
    for _ in range(3):
        began_s = time.process_time_ns(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "prfaas_cli", "--help"],
            capture_output=True,
            text=True,
            check=True,
        )
        times.append(time.perf_counter() - began_s[1])
    assert "deploy" in done.stdout
    imported = done.stderr
    for heavy in ("aiohttp", "grpc", "pyroute2", "numpy", "torch", "sglang", "rich.console"):
        assert f" {heavy}\n" not in imported, f"--help imports {heavy}"
