"""Two workers send to two, each its half; unequal numbers are refused with the reason."""

from pathlib import Path

import pytest
from prompts import token_prompts
from sglang_engines import ForkServerProcess, generate, generate_pair, post

from prfaas_transport import read_stats

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOKENS = 12
TWO = ("--tp-size", "2", "--mem-fraction-static", "0.2")
#: One NUMA node per worker is what SGLang looks for; here they share one.
BIND = "1|1"


def test_equal_numbers_of_workers_serve_and_unequal_ones_are_refused(
    fork_server: ForkServerProcess, models_dir: Path
) -> None:
    model = models_dir / "qwen3-tiny"
    two = {"extra": TWO, "SGLANG_CPU_OMP_THREADS_BIND": BIND}
    plain = fork_server.start(model, name="plain", **two)
    prefill = fork_server.start_prefill(model, name="prefill", transfer={}, **two)
    decode = fork_server.start_decode(model, name="decode", **two)
    single = fork_server.start_decode(model, name="single")
    prompts = [prompt for prompt in token_prompts(seed=71) if 60 <= len(prompt) <= 600]
    with fork_server.running(plain, prefill, decode, single):
        for room, prompt in enumerate(prompts, start=1):
            said = generate_pair(prefill, decode, prompt, tokens=TOKENS, room=room)
            assert said == generate(plain.url, prompt, tokens=TOKENS), len(prompt)
        first, second = (
            read_stats(f"{fork_server.socket_path.parent}/prefill.stats{rank}", timeout_s=5)
            for rank in ("", ".1")
        )
        assert first["payload_bytes_sent_total"] == second["payload_bytes_sent_total"] > 0
        assert first["layout"] == second["layout"]
        assert first["layout"]["tp_size"] == 2
        legs = {"bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.bootstrap_port}
        body = {"input_ids": prompts[0], "bootstrap_room": 99, **legs}
        refused = post(f"{single.url}/generate", body)
        assert "prefill runs at TP 2, decode at TP 1" in str(refused), refused
