"""Terraform really makes an emulated deployment of twins, and sees that it is there or not."""

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import PRFAASCTL, leftovers, prfaasctl
from ports import free_port
from terraform_rig import Terraform

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(300)]

NAME = f"tf{os.getpid()}"
WHERE = "envs/emulated"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    flags = ["--name", NAME, "--state-dir", str(tmp_path / "state")]
    assert prfaasctl("destroy", *flags).returncode == 0
    assert leftovers(NAME, tmp_path / "state" / NAME) == []


def test_apply_reapply_drift_and_destroy(tmp_path: Path, place: Path) -> None:
    terraform = Terraform.copied_to(tmp_path)
    state = tmp_path / "emulated.tfstate"
    terraform.run(WHERE, "init", f"-backend-config=path={state}")
    variables = {
        "name": NAME,
        "port": free_port(),
        "state_dir": str(place),
        "prfaasctl": str(PRFAASCTL),
    }
    (terraform.folder / WHERE / "terraform.tfvars.json").write_text(json.dumps(variables))

    terraform.run(WHERE, "apply", "-auto-approve")
    outputs = json.loads(state.read_text())["outputs"]
    with urllib.request.urlopen(outputs["api_url"]["value"] + "/models", timeout=30) as answer:
        assert answer.status == 200
    assert outputs["namespaces"]["value"] == {"a": f"prfaas-{NAME}-a", "b": f"prfaas-{NAME}-b"}
    assert "No changes" in terraform.run(WHERE, "plan", "-detailed-exitcode")

    assert prfaasctl("destroy", "--name", NAME, "--state-dir", str(place)).returncode == 0
    assert "the deployment is gone" in terraform.run(WHERE, "plan")

    terraform.run(WHERE, "destroy", "-auto-approve")
    assert json.loads(state.read_text())["resources"] == []
