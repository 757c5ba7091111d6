"""Negative controls: the token comparison notices a KV cache or a state that did not arrive.

A prefill that blanks a group's payload on the wire stands in for every way of losing it: the room
still completes, by count, so only the decoded tokens can tell.
"""

from pathlib import Path

import pytest
from prompts import token_prompts
from sglang_engines import Engine, ForkServerProcess, generate, generate_pair

pytestmark = pytest.mark.e2e

TOKENS = 16
PROMPTS = [prompt for prompt in token_prompts() if 60 <= len(prompt) <= 700][::2]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("model_name", "lost"),
    [
        ("qwen3-tiny", "kv"),
        ("qwen3-next-tiny", "kv"),
        ("qwen3-next-tiny", "state"),
        ("falcon-h1-tiny", "kv"),
        ("falcon-h1-tiny", "state"),
        ("mellum-tiny", "kv"),
        ("mellum-tiny", "state"),
    ],
)
def test_what_is_lost_changes_the_tokens(
    fork_server: ForkServerProcess, models_dir: Path, model_name: str, lost: str
) -> None:
    model = models_dir / model_name
    blank = {"blank_groups": [lost]}
    whole = fork_server.start_prefill(model, name=f"{model_name}-{lost}-whole", transfer={})
    blanked = fork_server.start_prefill(model, name=f"{model_name}-{lost}-blank", transfer=blank)
    decode = fork_server.start_decode(model, name=f"{model_name}-{lost}-decode")
    plain = fork_server.start(model, name=f"{model_name}-{lost}-plain")
    room = iter(range(1, 1000))
    with fork_server.running(whole, blanked, decode, plain):
        expected = [generate(plain.url, prompt, tokens=TOKENS) for prompt in PROMPTS]

        def through(prefill: Engine) -> list[list[int]]:
            return [
                generate_pair(prefill, decode, prompt, tokens=TOKENS, room=next(room))
                for prompt in PROMPTS
            ]

        assert through(whole) == expected
        wrong = through(blanked)
    # The first token travels with the metadata, so it is right all the same.
    assert [tokens[0] for tokens in wrong] == [tokens[0] for tokens in expected]
    differ = sum(w != e for w, e in zip(wrong, expected, strict=True))
    assert differ >= len(PROMPTS) // 2, f"only {differ} of {len(PROMPTS)} prompts noticed"
