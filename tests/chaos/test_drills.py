"""A few short drills on twins, through the command; the whole library is `make drills`."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deployment import PRFAASCTL, Deployment, deployed, wait_until

from prfaas_netem import show

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(300)]

SHORT = """
name = "{name}"
about = "A short one."
[load]
seconds = {seconds}
requests_per_s = 5.0
long_tokens = 5000
output_tokens = 60
{faults}
[expect]
sees = {sees}
right_share = {share}
may_lose_connections = true
recovery_within_s = 60.0
settle_within_s = 60.0
"""
CUT = '[[fault]]\nkind = "partition"\nat_s = 1.0\nseconds = {seconds}\n'
END = '[[fault]]\nkind = "{how}"\ntarget = "{target}"\nat_s = 1.0\n'
ABANDON = '[[fault]]\nkind = "abandon"\nshare = 0.6\nat_s = 0.0\nseconds = 4.0\n'


def drill_file(
    directory: Path, name: str, faults: str, *, seconds: float = 4.0, sees: str = "", share: int = 1
) -> Path:
    path = directory / f"{name}.toml"
    values = {"name": name, "faults": faults, "seconds": seconds, "share": share}
    path.write_text(SHORT.format(**values, sees=json.dumps([sees] if sees else [])))
    return path


@pytest.fixture(scope="module")
def regions(
    models_dir: Path, deployment_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    state = tmp_path_factory.mktemp("state")
    options = ["--engine", "twin", "--threshold", "2000", "--dilation", "0.2", "--scale", "2000"]
    made = Deployment(f"{deployment_name}d", state, models_dir / "qwen3-next-tiny")
    with deployed(made, *options) as running:
        yield running


def test_drills_hold_and_one_that_shows_nothing_does_not(
    regions: Deployment, tmp_path: Path
) -> None:
    """The link is cut while clients hang up; a prefill is killed, the gateway ended (a killed one's
    lease would live on for long). The last drill wants to see what cannot be."""
    prefill = END.format(how="kill", target="a-prefill-0")
    gateway = END.format(how="restart", target="b-gateway-0")
    files = [
        drill_file(tmp_path, "cut", CUT.format(seconds=2.0) + ABANDON),
        drill_file(tmp_path, "kill", prefill),
        # What the gateway had in its hands is lost with it.
        drill_file(tmp_path, "void", gateway, sees="model_not_found", share=0),
    ]
    done = regions.ctl("drill run", *map(str, files), "--json", "--report", str(tmp_path / "all"))
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    drills = json.loads(done.stdout)["drills"]
    assert {each["name"]: broken(each) for each in drills} == {
        "cut": set(),
        "kill": set(),
        "void": {"sees model_not_found"},
    }
    assert drills[0]["figures"]["outcomes"]["abandoned"] > 0
    record = (tmp_path / "all" / "track-record.md").read_text().splitlines()
    assert [line.split(" | ")[2] for line in record[2:]] == ["all", "all", "sees model_not_found"]
    assert "Drill void: FAILED" in (tmp_path / "all" / "void.html").read_text()


def broken(drill: dict[str, Any]) -> set[str]:
    return {finding["name"] for finding in drill["findings"] if not finding["holds"]}


def test_ctrl_c_mends_the_link(regions: Deployment, tmp_path: Path) -> None:
    file = drill_file(tmp_path, "long", CUT.format(seconds=60.0), seconds=70.0)
    place = ["--name", regions.name, "--state-dir", str(regions.state_dir)]
    with subprocess.Popen(
        [str(PRFAASCTL), "drill", "run", str(file), *place], stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: losses(regions) == {1.0}, timeout_s=60, what="the link is cut")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "mended: partition of the link" in said
    assert losses(regions) == {0.0}


def losses(regions: Deployment) -> set[float]:
    return {way["spec"]["loss"] for way in show(regions.directory / "link.sock")["directions"]}
