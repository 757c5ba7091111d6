"""A node takes the other role while requests flow, inside mutual TLS, and no request is lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from deployment import Deployment, deployed, wait_until
from prompts import token_prompts
from test_regions_faults import TOKENS, load

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(300)]

NODE = "b-prefill-0"
#: What may be said of a request while a role changes: nothing failed.
REASONS = {"below_threshold", "above_threshold", "no_local_prefill"}


def change(regions: Deployment, role: str, *args: str) -> tuple[int, dict[str, Any]]:
    done = regions.ctl("node role", NODE, role, "--json", *args)
    return done.returncode, dict(json.loads(done.stdout))


def fleet_role(regions: Deployment) -> str:
    nodes = regions.request("/admin/v1/fleet").json["nodes"]
    return next(str(node["role"]) for node in nodes if node["name"] == NODE)


def test_no_request_is_lost_while_a_node_changes_its_role_and_back(
    models_dir: Path, deployment_name: str, tmp_path: Path
) -> None:
    prompts = token_prompts(seed=51)[3:9]
    deployment = Deployment(f"{deployment_name}r", tmp_path, models_dir / "qwen3-next-tiny")
    with deployed(deployment, "--security", "mtls", "--role-switch") as regions:
        answers = [regions.generate(prompt, tokens=TOKENS) for prompt in prompts]
        expected = [answer.json["output_ids"] for answer in answers]
        engine = regions.engine_pid(NODE)
        with load(regions, prompts) as sent:
            code, said = change(regions, "decode")
            assert code == 1
            assert f"{NODE} is the only prefill node of region b" in said["error"]
            code, said = change(regions, "decode", "--force")
            assert (code, said["was"], said["changed"]) == (0, "prefill", True), said
            assert fleet_role(regions) == "decode"
            wait_until(
                lambda: regions.stats(NODE)["payload_bytes_received_total"] > 0,
                timeout_s=30,
                what="the node decodes",
            )
            # The other decode stays: no force is needed.
            code, said = change(regions, "prefill")
            assert (code, said["changed"]) == (0, True), said
            count = len(sent)
            wait_until(
                lambda: "local" in {one.answer.route for one in sent[count:]},
                timeout_s=30,
                what="the node prefills again",
            )
            assert change(regions, "prefill")[1]["changed"] is False
        assert [one.answer.body for one in sent if one.answer.status != 200] == []
        for one in sent:
            assert one.answer.json["output_ids"] == expected[one.prompt]
        assert {one.answer.headers["x-prfaas-reason"] for one in sent} <= REASONS
        assert {one.answer.route for one in sent} == {"local", "offload"}
        assert regions.engine_pid(NODE) == engine
        assert regions.ctl("status").returncode == 0
