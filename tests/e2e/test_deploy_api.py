"""`deploy` with keys and TLS on the API's port: every command works with a key, none leaks it."""

import json
import shlex
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import Deployment, deployed, prfaasctl

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
CAMPAIGN = """
name = "keyed"
requests = 4
warmup_share = 0.0
[slo]
ttft_s = 60
tpot_s = 1
[[workload]]
rate_per_s = 4
lengths = { tokens = 300 }
output_tokens = 4
"""
DRILL = """
name = "keyed"
about = "kill -9 of a node agent."
[load]
seconds = 3.0
requests_per_s = 4.0
[[fault]]
kind = "kill"
target = "a-prefill-0.agent"
at_s = 1.0
[expect]
recovery_within_s = 60.0
"""
TWINS = ("--threshold", "2000", "--scale", "2000", "--dilation", "0.2")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a keys file, an admin's key and a campaign."""
    folder = tmp_path_factory.mktemp("files")
    made = prfaasctl("keys", "add", "ops", "--role", "admin", "--file", str(folder / "keys.toml"))
    assert made.returncode == 0, made.stderr
    (folder / "ops.key").write_text(made.stdout.strip() + "\n")
    (folder / "campaign.toml").write_text(CAMPAIGN)
    (folder / "drill.toml").write_text(DRILL)
    return folder


def documented() -> list[list[str]]:
    """Return the commands of the page's chapter on deploy."""
    block = PAGE.read_text().split("## With deploy")[1].split("```")[1].removeprefix("sh")
    return [shlex.split(line)[1:] for line in block.strip().splitlines()]


@pytest.fixture(scope="module")
def regions(
    files: Path, models_dir: Path, deployment_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    made = Deployment(
        f"{deployment_name}a", tmp_path_factory.mktemp("state"), models_dir / "qwen3-next-tiny"
    )
    with deployed(made, *options(files)) as there:
        yield there


def options(files: Path) -> list[str]:
    """Return what the page's deploy says after its regions."""
    return [*in_folder(documented()[0][3:], files), *TWINS]


def in_folder(words: list[str], files: Path) -> list[str]:
    return [str(files / word) if (files / word).exists() else word for word in words]


def command(regions: Deployment, words: list[str], files: Path) -> subprocess.CompletedProcess[str]:
    place = ["--name", regions.name, "--state-dir", str(regions.state_dir)]
    return prfaasctl(*in_folder(words, files), *place)


def test_each_documented_command_works(regions: Deployment, files: Path, tmp_path: Path) -> None:
    commands = documented()[1:]
    assert len(commands) == 5
    for words in commands:
        out = ["--out", str(tmp_path / "run")] if "campaign" in words else []
        done = command(regions, [*words, *out], files)
        assert done.returncode == 0, (words, done.stderr[-2000:])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["measured"]["outcomes"] == {"answered": 4}, summary["measured"]["errors"]


def test_no_key_is_no_answer(regions: Deployment, files: Path) -> None:
    assert regions.ctl("status").returncode == 0  # it shows less
    for words in (["chat", "hello"], ["decisions"], ["top", "--once"]):
        done = command(regions, words, files)
        assert done.returncode == 1, words
        assert "API key is needed" in done.stderr


def test_clients_trust_the_deployments_ca(regions: Deployment, files: Path) -> None:
    url = f"https://127.0.0.1:{regions.port}/v1/models"
    key = (files / "ops.key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}", "Origin": "https://chat.example"}
    context = ssl.create_default_context(cafile=regions.directory / "certs" / "ca.crt")
    with urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), context=context, timeout=30
    ) as answer:
        assert json.load(answer)["data"]
        assert answer.headers["Access-Control-Allow-Origin"] == "https://chat.example"
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(url, timeout=30)


def test_another_deploy_says_what_it_would_change(regions: Deployment, files: Path) -> None:
    assert regions.deploy(*options(files))["outcome"] == "nothing to do"
    base = ["--regions", "a,b", "--model", str(regions.model), "--port", str(regions.port)]
    done = regions.ctl("deploy", *base, "--engine", "twin", *TWINS)
    assert done.returncode == 1
    assert "--tls: True -> False" in done.stderr
    assert "--set: gateway.request_timeout_s=120.0 -> none" in done.stderr


def test_no_key_is_in_files_or_arguments(regions: Deployment, files: Path, tmp_path: Path) -> None:
    key = (files / "ops.key").read_bytes().strip()
    held = [
        path for path in regions.directory.rglob("*") if path.is_file() and key in path.read_bytes()
    ]
    assert held == []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert key not in line.read_bytes()
        except OSError:
            continue


def test_a_drill_shows_the_key(regions: Deployment, files: Path) -> None:
    done = command(regions, ["--api-key-file", "ops.key", "drill", "run", "drill.toml"], files)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
