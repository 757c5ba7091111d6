"""The tiny models, made for real: the same bytes every time, and a tokenizer that works."""

import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from prfaas_cpu.models import TINY_MODELS, default_models_dir, store, tokenizer


@pytest.mark.timeout(240)
def test_two_makings_give_the_same_bytes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "prfaas_cpu.models", "make", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    for name in TINY_MODELS:
        made, kept = tmp_path / name, default_models_dir() / name
        assert (made / store.CHECKSUMS).read_text() == (kept / store.CHECKSUMS).read_text()
    again = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [line.rpartition(": ")[2] for line in again.stdout.splitlines()] == ["complete"] * 4


def test_the_tokenizer_is_lossless_and_knows_its_turns() -> None:
    tiny = AutoTokenizer.from_pretrained(default_models_dir() / TINY_MODELS[0])
    text = "Für 3 von 4 Fragen: ¿por qué?\n\tcode = [1, 2]"
    assert tiny.decode(tiny.encode(text)) == text
    assert len(tiny) == tokenizer.VOCABULARY
    turn = tiny.apply_chat_template(
        [{"role": "user", "content": "Hello"}], add_generation_prompt=True, tokenize=False
    )
    assert turn == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
