"""A deployment of twins: the paper's clusters on this machine, through the same commands."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import Answer, Deployment, deployed, wait_until
from twin_engines import TwinProcess, inject

from prfaas.blocks import HashedPrompt
from prfaas.config import NodeConfig, parse_node_config
from prfaas_twin.host import read_model
from prfaas_twin.kv_content import token_at

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(300)]

MODEL = "qwen3-next-tiny"
THRESHOLD = 2000
TOKENS = 16
SHORT, LONG = [5] * 1500, [6] * 20_000


@pytest.fixture(scope="module")
def regions(
    models_dir: Path, deployment_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    state = tmp_path_factory.mktemp("state")
    options = ["--engine", "twin", "--threshold", str(THRESHOLD), "--dilation", "0.2"]
    options += ["--instances", "1,2,2", "--scale", "2000"]
    with deployed(Deployment(f"{deployment_name}t", state, models_dir / MODEL), *options) as made:
        yield made


def config(regions: Deployment, node: str) -> NodeConfig:
    path = regions.directory / f"{node}.toml"
    return parse_node_config(path.read_text(), source=str(path))


def expected(regions: Deployment, prompt: list[int]) -> list[int]:
    model = read_model(config(regions, "b-decode-0"))
    hashed = HashedPrompt.of(prompt, namespace=f"{MODEL}\0\0")
    seed = model.content.seed(hashed)
    return [token_at(seed, position, model.vocabulary.spoken) for position in range(TOKENS)]


def ask(regions: Deployment, prompt: list[int]) -> Answer:
    answer = regions.generate(prompt, tokens=TOKENS)
    assert answer.status == 200, answer.body
    assert answer.json["output_ids"] == expected(regions, prompt)
    return answer


def test_long_prompts_cross_short_ones_do_not_and_tokens_are_right_on_both(
    regions: Deployment,
) -> None:
    shape = read_model(config(regions, "b-decode-0")).shape
    for prompt, route, node in ((SHORT, "local", "b"), (LONG, "offload", "a")):
        names = [f"{node}-prefill-{n}" for n in range(1 if node == "a" else 2)]
        wan = regions.wan_bytes()["rx_bytes"]
        before = sum(regions.stats(name)["payload_bytes_sent_total"] for name in names)
        assert ask(regions, prompt).route == route
        sent = sum(regions.stats(name)["payload_bytes_sent_total"] for name in names) - before
        crossed = regions.wan_bytes()["rx_bytes"] - wan
        assert sent == shape.prompt_bytes(len(prompt)) + 32
        assert crossed > sent if route == "offload" else crossed < 20_000


def test_chats_and_streams_go_through(regions: Deployment) -> None:
    body = {"model": MODEL, "max_tokens": TOKENS}
    chat = body | {"messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    whole = regions.post("/v1/chat/completions", chat).json["choices"][0]["message"]["content"]
    stream = regions.post("/v1/chat/completions", chat | {"stream": True})
    deltas = [event["choices"][0]["delta"] for event in stream.events if event["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == whole
    assert whole


def test_all_engines_are_there_and_the_link_is_scaled(regions: Deployment) -> None:
    status = regions.ctl("status", "--json")
    assert status.returncode == 0, status.stdout[-2000:]
    document = json.loads(status.stdout)
    assert set(document["engines"]) == {
        "a-prefill-0",
        "b-prefill-0",
        "b-prefill-1",
        "b-decode-0",
        "b-decode-1",
    }
    topology = json.loads((regions.directory / "topology.json").read_text())
    assert topology["link"]["rate_bits_per_s"] == int(100e9 / (2000 * 0.2))
    assert topology["link"]["delay_s"] == pytest.approx(0.010 * 0.2)


def test_a_prefill_that_crashes_costs_no_request_and_comes_back(regions: Deployment) -> None:
    node = config(regions, "a-prefill-0")
    pid = regions.engine_pid("a-prefill-0")
    inject(TwinProcess(None, (node,), Path()), crash=True)  # type: ignore[arg-type]
    answer = ask(regions, [7] * 20_000)
    assert answer.route in {"fallback", "local"}
    wait_until(
        lambda: (
            regions.engine_pid("a-prefill-0") != pid
            and ask(regions, [int(time.time()) % 500] * 20_000).route == "offload"
        ),
        timeout_s=30,
        what="the twin is back and used",
    )


def roles_of(regions: Deployment) -> dict[str, int]:
    nodes = regions.request("/admin/v1/fleet").json["nodes"]
    kept = [node["role"] for node in nodes if node["region"] == "b" and not node["draining"]]
    return {role: kept.count(role) for role in ("prefill", "decode")}


def test_a_plan_by_hand_converts_a_node_and_no_request_is_lost(
    models_dir: Path, deployment_name: str, tmp_path: Path
) -> None:
    options = ["--engine", "twin", "--threshold", str(THRESHOLD), "--dilation", "0.2"]
    options += ["--instances", "1,1,2", "--role-switch"]
    made = Deployment(f"{deployment_name}s", tmp_path, models_dir / MODEL)
    with deployed(made, *options):
        assert roles_of(made) == {"prefill": 1, "decode": 2}
        done = made.ctl("schedule apply", "--roles", "b=2/1", "--threshold", "3000", "--pin")
        assert done.returncode == 0, done.stderr

        def is_converted() -> bool:
            assert ask(made, [int(time.time() * 100) % 500] * 2500).status == 200
            return roles_of(made) == {"prefill": 2, "decode": 1}

        wait_until(is_converted, timeout_s=60, what="a decode has become a prefill")
        assert ask(made, [9] * 2900).route == "local"
        assert "b=2/1" in made.ctl("schedule show").stdout


def test_twins_work_inside_mutual_tls(
    models_dir: Path, deployment_name: str, tmp_path: Path
) -> None:
    """Lanes, bootstrap and HTTP between regions: through the agents' ports, as SGLang's."""
    options = ["--engine", "twin", "--threshold", str(THRESHOLD), "--dilation", "0.2"]
    made = Deployment(f"{deployment_name}m", tmp_path, models_dir / MODEL)
    with deployed(made, *options, "--security", "mtls"):
        assert ask(made, LONG).route == "offload"
        assert ask(made, SHORT).route == "local"
        assert made.stats("a-prefill-0")["security"]["mode"] == "mtls"
