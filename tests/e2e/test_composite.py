"""A decode takes caches of its region by SGLang's backends, and of others by the lanes."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from ports import free_port
from prompts import token_prompts
from sglang_engines import Engine, ForkServerProcess, generate, generate_pair

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOKENS = 16
ROOMS = count(1)


def start(
    starter: ForkServerProcess, model: Path, *, name: str, role: str, region: str, backend: str
) -> Engine:
    port = free_port()
    extra = ["--disaggregation-mode", role, "--disaggregation-transfer-backend", "prfaas"]
    extra += ["--disaggregation-bootstrap-port", str(port)]
    extra += ["--disaggregation-decode-retraction-backup", "cpu_tensor"]
    return starter.start(
        model,
        name=name,
        extra=extra,
        bootstrap_port=port,
        PRFAAS_NODE=name,
        PRFAAS_REGION=region,
        PRFAAS_TRANSFER=json.dumps({"local_backend": backend}),
        PRFAAS_STATS_SOCKET=str(starter.socket_path.parent / f"{name}.stats"),
    )


@pytest.mark.parametrize("backend", ["mooncake", "nixl"])
def test_each_region_is_reached_its_own_way_at_the_same_time(
    fork_server: ForkServerProcess, models_dir: Path, backend: str
) -> None:
    model = models_dir / "qwen3-next-tiny"
    near, far, decode = (
        start(
            fork_server, model, name=f"{backend}-{name}", role=role, region=region, backend=backend
        )
        for name, role, region in (
            ("near", "prefill", "b"),
            ("far", "prefill", "a"),
            ("decode", "decode", "b"),
        )
    )
    plain = fork_server.start(model, name=f"{backend}-plain")
    prompts = [prompt for prompt in token_prompts(seed=61) if 60 <= len(prompt) <= 700]
    with fork_server.running(near, far, decode, plain):
        expected = [generate(plain.url, prompt, tokens=TOKENS) for prompt in prompts]

        def through(prefill: Engine, prompt: list[int]) -> list[int]:
            return generate_pair(prefill, decode, prompt, tokens=TOKENS, room=next(ROOMS))

        with ThreadPoolExecutor(4) as pool:
            by_near = [pool.submit(through, near, prompt) for prompt in prompts]
            by_far = [pool.submit(through, far, prompt) for prompt in prompts]
            assert [future.result() for future in by_near] == expected
            assert [future.result() for future in by_far] == expected
        sent = {
            name: fork_server.stats(f"{backend}-{name}")["payload_bytes_sent_total"]
            for name in ("near", "far")
        }
        assert sent["near"] == 0
        assert sent["far"] > 0
        assert fork_server.stats(f"{backend}-decode")["payload_bytes_received_total"] == sent["far"]
