"""Real SGLang with the CPU kit answers as transformers does, token by token."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompts import token_prompts
from sglang_engines import ForkServerProcess, generate

from prfaas_cpu.models import TINY_MODELS, default_models_dir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOKENS = 32
LENGTHS = (5, 64, 65, 200, 513, 1025, 2300)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServerProcess]:
    server = ForkServerProcess(tmp_path_factory.mktemp("cpu-engines"))
    yield server
    server.close()


def transformers_answers(model: Path, prompts: list[list[int]]) -> list[list[int]]:
    script = Path(__file__).with_name("transformers_greedy.py")
    finished = subprocess.run(
        [sys.executable, script, model, str(TOKENS)],
        input=json.dumps(prompts).encode(),
        capture_output=True,
        check=True,
    )
    return list(json.loads(finished.stdout))


@pytest.mark.parametrize("name", TINY_MODELS)
def test_greedy_tokens_are_equal_the_first_time_and_from_cache(
    engines: ForkServerProcess, name: str
) -> None:
    model = default_models_dir() / name
    prompts = [prompt for prompt in token_prompts() if len(prompt) in LENGTHS]
    expected = transformers_answers(model, prompts)
    engine = engines.start(model, name=name)
    with engines.running(engine):
        alone = [generate(engine.url, prompt, tokens=TOKENS) for prompt in prompts]
        assert alone == expected
        # The same prompts again continue from cached prefixes and states.
        again = [generate(engine.url, prompt, tokens=TOKENS) for prompt in prompts]
        assert again == expected
    assert len({tuple(answer) for answer in expected}) == len(prompts)
    assert min(len(set(answer)) for answer in expected) > 1
