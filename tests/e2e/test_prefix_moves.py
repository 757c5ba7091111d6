"""Prefixes in the pools of two regions: kept when an engine dies, moved to where they are used."""

import json
import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import Deployment, deployed, wait_until
from pooled_engines import POOL_BYTES, wait_stored
from prompts import SPECIAL_TOKENS, VOCABULARY

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "prefix-pool.md"
TOKENS = 12
#: A state is kept at multiples of that, and at a prompt's end.
CHUNK = 512


def tokens(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(SPECIAL_TOKENS, VOCABULARY) for _ in range(count)]


@pytest.fixture(scope="module")
def regions(models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two regions of a hybrid model, with pools, everything between them inside mutual TLS."""
    path = tmp_path_factory.mktemp("moves")
    found = Deployment(f"e{os.getpid()}p", path, models_dir / "qwen3-next-tiny")
    options = ("--pool-bytes", str(POOL_BYTES), "--security", "mtls", "--cache-events")
    with deployed(found, *options):
        yield found


def test_a_moved_prefix_is_used_by_the_next_request(regions: Deployment, tmp_path: Path) -> None:
    prompt = tokens(1300, 1)
    continued = [*prompt, *tokens(200, 2)]
    assert regions.generate(prompt, tokens=1).route == "offload"
    wait_stored(regions.directory / "a.pool.sock")
    file = tmp_path / "prompt.json"
    file.write_text(json.dumps(prompt))
    where = ("--from", "a", "--to", "b", "--tokens-file", str(file), "--json")
    done = regions.ctl("prefix move", *where)
    assert done.returncode == 0, done.stderr
    moved = json.loads(done.stdout)
    assert (moved["outcome"], moved["tokens"], moved["had_tokens"]) == ("moved", 1300, 0)
    again = json.loads(regions.ctl("prefix move", *where).stdout)
    assert (again["outcome"], again["num_bytes"]) == ("nothing", 0)
    # 200 tokens are left to compute: below the threshold, so b does it.
    warm = regions.generate(continued, tokens=TOKENS)
    assert (warm.route, warm.headers["x-prfaas-prefill"]) == ("local", "b-prefill-0")
    assert warm.json["meta_info"]["cached_tokens"] == 1300
    salted = {"input_ids": continued, "extra_key": "nobody"}
    sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    cold = regions.post("/generate", {**salted, "sampling_params": sampling})
    assert cold.json["meta_info"]["cached_tokens"] == 0
    assert warm.json["output_ids"] == cold.json["output_ids"]
    shown = regions.ctl("prefix moves").stdout
    assert "by_hand" in shown


def test_the_gateway_is_told_what_the_engines_hold(regions: Deployment) -> None:
    def told() -> dict[str, int | None]:
        fleet = regions.request("/admin/v1/fleet").json
        return {node["name"]: node["told_blocks"] for node in fleet["nodes"]}

    wait_until(
        lambda: None not in (told()["a-prefill-0"], told()["b-prefill-0"]),
        timeout_s=30,
        what="both prefill nodes tell of their caches",
    )
    before = told()
    assert regions.generate(tokens(700, 20), tokens=1).route == "offload"
    wait_until(
        lambda: (told()["a-prefill-0"] or 0) >= (before["a-prefill-0"] or 0) + 700 // 64,
        timeout_s=30,
        what="the gateway knows of the prompt's blocks",
    )


def test_the_commands_of_the_page_work(regions: Deployment, tmp_path: Path) -> None:
    text = tmp_path / "prompt.txt"
    text.write_text(" ".join(f"the story of number {n}" for n in range(200)))
    body = {"model": "", "prompt": text.read_text(), "max_tokens": 1}
    assert regions.post("/v1/completions", body).status == 200
    wait_stored(regions.directory / "a.pool.sock")
    found = re.findall(r"^    prfaasctl (prefix \w+)(.*)$", PAGE.read_text(), re.MULTILINE)
    assert [command for command, _ in found] == ["prefix move", "prefix moves"]
    for command, options in found:
        words = options.replace("prompt.txt", str(text)).split()
        done = regions.ctl(command, *words)
        assert done.returncode == 0, done.stderr
        assert "a-prefill-0" in done.stdout


def test_a_prefix_comes_by_itself_where_it_is_asked_for(regions: Deployment) -> None:
    """The link is idle: its bandwidth is abundant once something is known of it."""
    stem = tokens(1024, 3)
    assert regions.generate([*stem, *tokens(30, 4)], tokens=1).route == "offload"
    wait_stored(regions.directory / "a.pool.sock")
    seeds = iter(range(5, 200))

    def comes_home() -> bool:
        answer = regions.generate([*stem, *tokens(40, next(seeds))], tokens=1)
        assert answer.status == 200
        return answer.headers["x-prfaas-prefill"] == "b-prefill-0"

    wait_until(comes_home, timeout_s=60, what="prompts with the stem are prefilled in b")
    warm = regions.generate([*stem, *tokens(40, 999)], tokens=TOKENS)
    assert warm.route == "local"
    assert warm.json["meta_info"]["cached_tokens"] == 1024
    moves = json.loads(regions.ctl("prefix moves", "--json").stdout)
    causes = {move["cause"] for move in moves["moves"] if move["outcome"] == "moved"}
    assert causes & {"hot", "request"}, moves


def test_a_region_keeps_its_prefixes_when_its_engine_is_killed(regions: Deployment) -> None:
    """The answer is the same, whether the prefill had it from the pool or from a move out of it."""
    prompt = tokens(1500, 400)
    cold = regions.generate(prompt, tokens=TOKENS)
    assert cold.route == "offload"
    wait_stored(regions.directory / "a.pool.sock")
    killed = regions.kill_engine("a-prefill-0")
    wait_until(
        lambda: regions.engine_pid("a-prefill-0") != killed and _is_serving(regions),
        timeout_s=60,
        what="the engine is started again",
    )
    _wait_offloading(regions)
    warm = regions.generate(prompt, tokens=TOKENS)
    assert warm.json["output_ids"] == cold.json["output_ids"]
    assert warm.json["meta_info"]["cached_tokens"] >= 2 * CHUNK


def _is_serving(regions: Deployment) -> bool:
    text = (regions.directory / "a-prefill-0.agent.json").read_text()
    return bool(json.loads(text)["phase"] == "serving")


def _wait_offloading(regions: Deployment) -> None:
    """Send other prompts until the gateway knows of the new engine."""
    deadline_s = time.monotonic() + 30
    seed = 1000
    while regions.generate(tokens(600, seed), tokens=1).route != "offload":
        assert time.monotonic() < deadline_s, "nothing is offloaded any more"
        seed += 1
        time.sleep(0.2)
