"""A campaign on twins: through the gateway, over the link, beside the simulation."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import Deployment, deployed

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(300)]

CAMPAIGN = """
name = "small"
requests = 16
warmup_share = 0.0
[slo]
ttft_s = 60
tpot_s = 1
[plan]
case = "paper"
[[workload]]
rate_per_s = 2
arrivals = { process = "even" }
lengths = { mu = 9.0, sigma = 1.0, low = 128, high = 60000 }
draw = "stratified"
output_tokens = 8
[[workload]]
tenant = "texts"
rate_per_s = 2
arrivals = { process = "even" }
lengths = { tokens = 3000 }
output_tokens = 8
"""


@pytest.fixture(scope="module")
def regions(
    models_dir: Path, deployment_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    made = Deployment(
        f"{deployment_name}k", tmp_path_factory.mktemp("state"), models_dir / "qwen3-next-tiny"
    )
    with deployed(made, "--engine", "twin", "--threshold", "8000", "--instances", "1,1,1") as there:
        yield there


def test_a_campaign_measures_what_crosses_and_what_is_predicted(
    regions: Deployment, tmp_path: Path
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(CAMPAIGN)
    done = regions.ctl("campaign run", str(file), "--out", str(tmp_path / "run"), "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    measured = result["measured"]
    assert measured["outcomes"] == {"answered": 16}, measured["errors"]
    assert measured["miscounted"] == 0
    assert set(measured["routes"]) == {"local", "offload"}
    simulated = result["prediction"]["simulated"]
    assert simulated["offload_fraction"] == measured["offload_fraction"]
    # A busy machine makes it slower than predicted; faster it cannot be.
    assert measured["ttft"]["mean"] > 0.8 * simulated["ttft"]["mean"]
    assert measured["tpot"]["p50"] > 0.9 * simulated["tpot"]["p50"]
    assert result["egress"]["mean_bits_per_s"] > 0
    assert result["target"]["dilation"] == 1.0
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<svg") == 6
    assert "simulated" in page


def test_texts_and_chats_have_exactly_their_tokens_at_the_gateway(
    regions: Deployment, tmp_path: Path
) -> None:
    """The gateway's own tokenizer and template count the prompts."""
    target = f'[target]\napi = "chat"\ninput = "text"\ntokenizer = "{regions.model}"\n'
    file = tmp_path / "c.toml"
    file.write_text(
        CAMPAIGN.replace("[slo]", f"{target}[slo]").replace("requests = 16", "requests = 6")
    )
    done = regions.ctl("campaign run", str(file), "--out", str(tmp_path / "run"), "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    measured = json.loads(done.stdout)["measured"]
    assert measured["outcomes"] == {"answered": 6}, measured["errors"]
    assert measured["miscounted"] == 0
