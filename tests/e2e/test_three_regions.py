"""Three regions: two prefill over links of their own, the third decodes. Twins, real lanes."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deployment import Answer, Deployment, deployed, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(200)]

TOPOLOGY = Path(__file__).parents[1] / "data/topologies/three-regions.toml"
THRESHOLD = 2000


@pytest.fixture(scope="module")
def regions(
    models_dir: Path, deployment_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    place = Deployment(
        f"{deployment_name}r", tmp_path_factory.mktemp("state"), models_dir / "qwen3-next-tiny"
    )
    options = ["--topology", str(TOPOLOGY), "--regions", "us,asia,eu", "--engine", "twin"]
    options += ["--instances", "1,1,1,1", "--threshold", str(THRESHOLD), "--scale", "1000"]
    with deployed(place, *options) as made:
        yield made


def ask(regions: Deployment, number: int, tokens: int = 20_000) -> Answer:
    answer = regions.generate([number + 1] * tokens, tokens=4)
    assert answer.status == 200, answer.body
    return answer


def regions_used(answers: list[Answer]) -> Counter[str]:
    return Counter(answer.headers["x-prfaas-prefill"].partition("-")[0] for answer in answers)


def sent_bytes(regions: Deployment) -> dict[str, int]:
    """Return the payload that each prefill has sent."""
    names = ("us-prefill-0", "asia-prefill-0", "eu-prefill-0")
    return {name: regions.stats(name)["payload_bytes_sent_total"] for name in names}


def test_both_prefill_regions_are_used_and_short_prompts_stay(regions: Deployment) -> None:
    before = sent_bytes(regions)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda number: ask(regions, number), range(6)))
    assert all(answer.route == "offload" for answer in answers)
    used = regions_used(answers)
    assert used["us"] >= 1
    assert used["asia"] >= 1
    sent = {name: total - before[name] for name, total in sent_bytes(regions).items()}
    assert sent["us-prefill-0"] > 0
    assert sent["asia-prefill-0"] > 0
    assert sent["eu-prefill-0"] == 0

    short = ask(regions, 50, tokens=1000)
    assert (short.route, short.headers["x-prfaas-prefill"]) == ("local", "eu-prefill-0")


def test_a_link_that_breaks_costs_its_region_alone(regions: Deployment) -> None:
    assert regions.ctl("link set", "us-eu", "--loss", "100%").returncode == 0

    def is_closed(region: str) -> bool:
        fleet = regions.request("/admin/v1/fleet").json
        return bool(fleet["links"][region]["rule"]["closed"])

    wait_until(lambda: is_closed("us"), timeout_s=20, what="the link to us is closed")
    answers = [ask(regions, number) for number in range(100, 104)]
    assert regions_used(answers) == {"asia": 4}
    assert all(answer.route == "offload" for answer in answers)
    assert not is_closed("asia")
