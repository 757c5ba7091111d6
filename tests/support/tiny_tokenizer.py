"""A model directory with a tokenizer of one token per word, and a chat template."""

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

CHAT_TEMPLATE = """
{%- for message in messages -%}
{%- if message.role == 'tool' -%}{{ raise_exception('no tools here') }}{%- endif -%}
{{ bos_token }} {{ message.role }} {{ message.content }}{{ ' ' }}
{%- endfor -%}
{%- if add_generation_prompt -%}assistant{%- endif -%}
"""


def make_tokenizer(folder: Path, *, chat: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {"[UNK]": 0} | {f"w{index}": index + 1 for index in range(2000)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": {"content": "<s>"}, "chat_template": CHAT_TEMPLATE if chat else None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def words(count: int, *, first: int = 0) -> str:
    """Return a prompt of `count` tokens."""
    return " ".join(f"w{(first + index) % 2000}" for index in range(count))
