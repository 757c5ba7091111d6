"""Our Terraform configuration without a network and without a cloud.

AWS's part is checked against the schema of the real provider by a stand-in that can make nothing.
"""

import json
from pathlib import Path

import pytest
from terraform_rig import Terraform

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    made = Terraform.copied_to(tmp_path_factory.mktemp("tf"))
    made.run("envs/aws", "init")
    backend = f"-backend-config=path={made.folder / 'emulated.tfstate'}"
    made.run("envs/emulated", "init", backend)
    return made


def test_all_of_it_is_formatted(terraform: Terraform) -> None:
    assert terraform.run(".", "fmt", "-check", "-recursive") == ""


def test_it_fits_the_schema(terraform: Terraform) -> None:
    assert "Success!" in terraform.run("envs/aws", "validate")
    assert "Success!" in terraform.run("envs/emulated", "validate")


def test_what_does_not_fit_the_schema_is_found(tmp_path: Path) -> None:
    """So that the test above can fail."""
    broken = Terraform.copied_to(tmp_path)
    path = broken.folder / "modules/region/main.tf"
    path.write_text(path.read_text().replace("enable_dns_support ", "enable_dns_suport "))
    broken.run("envs/aws", "init")
    said = broken.run("envs/aws", "validate", code=1)
    assert 'Did you mean "enable_dns_support"?' in " ".join(said.split())


def test_emulated_plans_and_refusals(terraform: Terraform) -> None:
    said = terraform.run("envs/emulated", "test")
    assert "3 passed, 0 failed" in said


def test_aws_plans(terraform: Terraform) -> None:
    said = terraform.run("envs/aws", "test")
    assert "1 passed, 0 failed" in said


def test_regions_must_differ_and_etcd_needs_a_majority(terraform: Terraform) -> None:
    roles = {
        role: {"count": 1, "instance_type": "m7i.large"}
        for role in ("prefill", "decode", "gateway")
    }
    region = {"name": "us", "aws_region": "us-east-2", "cidr": "10.10.0.0/16", "zones": ["a"]}
    region |= {"ami": "ami-0123456789abcdef0", "roles": roles, "etcd": 1}
    variables = {
        "first": region,
        "second": region,
        "key_name": "ops",
        "admin_cidrs": ["198.51.100.0/24"],
        "prices": {"hourly": {"m7i.large": -1}, "transfer_gb": 0},
        "transfer_gb_per_month": 0,
    }
    path = terraform.folder / "same.tfvars.json"
    path.write_text(json.dumps(variables))
    said = terraform.run("envs/aws", "plan", f"-var-file={path}", code=1)
    assert "another name than the first's" in said
    assert "one, three or five members" in said
    assert "prices: not below 0" in said


def test_all_wrong_inputs_of_aws_are_named_at_once(terraform: Terraform) -> None:
    region = {
        "name": "us",
        "aws_region": "us-east-2",
        "cidr": "10.10.0.0/30",
        "zones": [],
        "ami": "debian",
        "roles": {"trainer": {"count": 0, "instance_type": "p5e.48xlarge"}},
        "efa": ["gateway"],
    }
    roles = {
        role: {"count": 1, "instance_type": "m7i.large"}
        for role in ("prefill", "decode", "gateway")
    }
    variables = {
        "first": region,
        "second": region
        | {"name": "wan", "cidr": "10.20.0.0/30", "aws_region": "Frankfurt", "roles": roles},
        "key_name": "ops",
        "admin_cidrs": ["0.0.0.0/0"],
        "interconnect": "cable",
        "mtu_bytes": 100,
        "prices": {"hourly": {}, "transfer_gb": 0},
        "transfer_gb_per_month": 0,
    }
    path = terraform.folder / "wrong.tfvars.json"
    path.write_text(json.dumps(variables))
    said = terraform.run("envs/aws", "plan", f"-var-file={path}", "-refresh=false", code=1)
    said = " ".join(said.replace("│", " ").split())
    for what in (
        "cidr: an IPv4 network",
        "zones: one to four",
        "admin_cidrs: at least one network",
        "name: 1 to 12 lowercase",
        "ami: as in",
        "roles: prefill, decode and gateway",
        "roles: each with a count",
        "efa: prefill, decode",
        "kind: peering or transit-gateway",
        "mtu_bytes: 1280 to 9001",
        "second_aws_region: as in",
    ):
        assert what in said, f"{what!r} is not in {said}"
