"""What clients and operators see when parts of a deployment die under load."""

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from deployment import Answer, Deployment, deployed, leftovers, prfaasctl, wait_until
from prompts import token_prompts

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(300)]

TOKENS = 8
LONG = token_prompts(seed=11)[-1]
SHORT = token_prompts(seed=11)[4]
SLOW_LINK = ("--rate", "4mbit")
FAST_LINK = ("--rate", "100gbit")
RESTART_S = 60.0
#: How long requests may still go to an engine whose scheduler was killed. Measured: one request or
#: none, within 0.1 s; where nobody watches the scheduler, SGLang takes 5 to 9 s to notice.
DEAD_ENGINE_USED_S = 2.0
SEEDS = itertools.count(100)


@pytest.fixture(scope="module")
def regions(
    models_dir: Path, deployment_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("faults")
    deployment = Deployment(f"{deployment_name}f", directory, models_dir / "qwen3-next-tiny")
    with deployed(deployment) as running:
        yield running


def set_link(regions: Deployment, *args: str) -> None:
    done = regions.ctl("link set a-b", *args)
    assert done.returncode == 0, done.stderr


def offloads(regions: Deployment) -> bool:
    """Tell whether a long prompt that no region has seen is prefilled in region a."""
    answer = regions.generate(token_prompts(seed=next(SEEDS))[-2], tokens=2)
    return answer.status == 200 and answer.route == "offload"


def test_prefill_killed_in_mid_transfer_still_gives_the_right_tokens(regions: Deployment) -> None:
    """kill -9 of region a's engine while its KV cache is on a slow link: the local path answers."""
    expected = regions.generate(LONG, tokens=TOKENS)
    assert expected.route == "offload"
    prompt = [*LONG[:-1], LONG[-1] ^ 1]
    before_kill = regions.generate(prompt, tokens=TOKENS)
    set_link(regions, *SLOW_LINK)
    sent = regions.stats("a-prefill-0")["payload_bytes_sent_total"]
    with ThreadPoolExecutor(1) as pool:
        started = time.monotonic()
        request = pool.submit(regions.generate, prompt, tokens=TOKENS)
        wait_until(
            lambda: regions.stats("a-prefill-0")["payload_bytes_sent_total"] > sent + 50_000,
            timeout_s=30,
            what="the transfer is under way",
        )
        rooms = regions.stats("b-decode-0")["rooms_open"]
        old_pid = regions.kill_engine("a-prefill-0")
        answer = request.result()
    set_link(regions, *FAST_LINK)
    assert rooms == 1
    assert answer.status == 200, answer.body
    assert answer.route == "fallback"
    assert answer.headers["x-prfaas-reason"] == "offload_failed"
    assert answer.json["output_ids"] == before_kill.json["output_ids"]
    assert time.monotonic() - started < 60
    wait_until(
        lambda: regions.engine_pid("a-prefill-0") != old_pid and offloads(regions),
        timeout_s=RESTART_S,
        what="the restarted prefill is used again",
    )


@dataclass(frozen=True)
class Sent:
    """One request of a load: when it was sent, on `time.monotonic`, and what came back."""

    at_s: float
    prompt: int
    answer: Answer


@contextlib.contextmanager
def load(regions: Deployment, prompts: list[list[int]]) -> Iterator[list[Sent]]:
    """Send the prompts in turn, four a second, while the block runs; all are answered after it."""
    done = threading.Event()
    sent: list[Sent] = []

    def send(number: int) -> None:
        at_s = time.monotonic()
        answer = regions.generate(prompts[number], tokens=TOKENS)
        sent.append(Sent(at_s, number, answer))

    def pace(pool: ThreadPoolExecutor) -> list[Future[None]]:
        turns = itertools.cycle(range(len(prompts)))
        futures = [pool.submit(send, next(turns))]
        while not done.wait(0.25):
            futures.append(pool.submit(send, next(turns)))
        return futures

    with ThreadPoolExecutor(32) as pool:
        pacer = pool.submit(pace, pool)
        try:
            yield sent
        finally:
            done.set()
        for future in pacer.result():
            future.result()


def scheduler_pid(regions: Deployment, node: str) -> int:
    """Return the process id of a node's SGLang scheduler, which `ps` shows by name."""
    engine = regions.engine_pid(node)
    children = Path(f"/proc/{engine}/task/{engine}/children").read_text().split()
    (pid,) = [
        int(child)
        for child in children
        if Path(f"/proc/{child}/comm").read_text().startswith("sglang::schedul")
    ]
    return pid


def test_a_killed_scheduler_costs_no_request_its_answer(regions: Deployment) -> None:
    """kill -9 of the local prefill's scheduler under load: the other region prefills meanwhile."""
    prompts = token_prompts(seed=12)[3:9]
    expected = [regions.generate(prompt, tokens=TOKENS).json["output_ids"] for prompt in prompts]
    old_pid = regions.engine_pid("b-prefill-0")
    with load(regions, prompts) as sent:
        wait_until(lambda: len(sent) >= 4, timeout_s=30, what="the load runs")
        killed_s = time.monotonic()
        os.kill(scheduler_pid(regions, "b-prefill-0"), signal.SIGKILL)
        wait_until(
            lambda: (
                regions.engine_pid("b-prefill-0") != old_pid
                and sent[-1].at_s > killed_s + DEAD_ENGINE_USED_S
                and sent[-1].answer.route == "local"
            ),
            timeout_s=RESTART_S,
            what="the restarted prefill is used again",
        )
    assert [one.answer.body for one in sent if one.answer.status != 200] == []
    for one in sent:
        assert one.answer.json["output_ids"] == expected[one.prompt]
    failed_s = [
        one.at_s - killed_s
        for one in sent
        if one.answer.headers["x-prfaas-reason"] == "local_failed"
    ]
    assert max(failed_s, default=0.0) < DEAD_ENGINE_USED_S
    assert "no_local_prefill" in {one.answer.headers["x-prfaas-reason"] for one in sent}


def test_etcd_killed_and_restarted_stops_no_request(regions: Deployment) -> None:
    os.kill(regions.process_pid("b-etcd-0"), signal.SIGKILL)
    for seed in range(30, 34):
        assert regions.generate(token_prompts(seed=seed)[4], tokens=2).status == 200
        assert offloads(regions)
    wait_until(
        lambda: not regions.request("/admin/v1/fleet").json["etcd"]["stale"],
        timeout_s=RESTART_S,
        what="the gateway has caught up with the restarted etcd",
    )
    assert offloads(regions)


def test_agents_and_gateway_killed_come_back_without_a_new_engine(regions: Deployment) -> None:
    engine = regions.engine_pid("a-prefill-0")
    for name in ("a-prefill-0", "b-gateway-0"):
        os.kill(regions.process_pid(name), signal.SIGKILL)
    wait_until(lambda: offloads(regions), timeout_s=RESTART_S, what="requests flow again")
    assert regions.engine_pid("a-prefill-0") == engine


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/generate", b"{", 400, "JSON"),
        ("/v1/completions", b"[]", 400, "object"),
        ("/v1/completions", {"model": "nope", "prompt": "x"}, 404, "nope"),
        ("/v1/completions", {"prompt": ""}, 400, "empty"),
        ("/v1/completions", {"prompt": "word " * 9000, "max_tokens": 4}, 400, "4096"),
        ("/generate", {"input_ids": []}, 400, "empty"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/generate", {"input_ids": [5, 600, 7]}, 400, "vocabulary is 0 to 511"),
        ("/v1/completions", {"prompt": "x", "logprobs": 129}, 400, "0 to 128"),
        ("/v1/nothing", {}, 404, "/v1/nothing"),
    ],
)
def test_a_bad_request_is_refused_in_one_line(
    regions: Deployment, path: str, body: bytes | dict[str, object], status: int, says: str
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = regions.request(path, data)
    assert answer.status == status, answer.body
    message = answer.json["error"]["message"]
    assert says in message
    assert "\n" not in message


def test_a_second_deploy_changes_nothing(regions: Deployment) -> None:
    engines = [regions.engine_pid(node) for node in ("a-prefill-0", "b-decode-0")]
    started = time.monotonic()
    regions.deploy()
    assert time.monotonic() - started < 20
    assert [regions.engine_pid(node) for node in ("a-prefill-0", "b-decode-0")] == engines
    conflict = regions.ctl("deploy", "--regions", "a,c")
    assert conflict.returncode != 0
    assert regions.generate(SHORT, tokens=2).status == 200


def test_status_link_and_chat_tell_what_is_there(regions: Deployment) -> None:
    status = regions.ctl("status", "--json")
    assert status.returncode == 0, status.stdout + status.stderr
    link = json.loads(regions.ctl("link show", "--json").stdout)
    assert json.dumps(link).count("rtt") > 0
    chat = regions.ctl("chat", "Tell me of links.", "--repeat-to", "900", "--json")
    assert chat.returncode == 0, chat.stderr
    said = json.loads(chat.stdout)
    assert said["routing"]["route"] == "offload"
    assert said["routing"]["prompt_tokens"] >= 900
    (carried,) = [
        moved for moved in said["moved"] if (moved.get("from"), moved.get("to")) == ("a", "b")
    ]
    (sent,) = [
        moved
        for moved in said["moved"]
        if (moved.get("node"), moved.get("direction")) == ("a-prefill-0", "sent")
    ]
    assert carried["bytes"] > sent["bytes"] > 0


def test_destroy_after_kill_9_of_the_supervisor_and_more_leaves_nothing(
    regions: Deployment,
) -> None:
    """Last: the fixture's own destroy then finds nothing to do."""
    supervisor = int(json.loads((regions.directory / "supervisor.json").read_text())["pid"])
    link = regions.process_pid("link")
    os.kill(supervisor, signal.SIGKILL)
    os.kill(link, signal.SIGKILL)
    regions.kill_engine("b-decode-0")
    regions.destroy()
    assert not regions.directory.exists()
    assert leftovers(regions.name, regions.directory) == []
    again = prfaasctl("destroy", "--name", regions.name, "--state-dir", str(regions.state_dir))
    assert again.returncode == 0, again.stderr
