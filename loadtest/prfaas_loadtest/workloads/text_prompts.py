"""Prompts as text that the served tokenizer reads as exactly so many tokens."""

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from prfaas.chat_template import compile_template, render_chat, special_tokens, template_source
from prfaas.errors import ConfigError
from prfaas_loadtest.workloads.prompts import IdPrompts
from prfaas_loadtest.workloads.schedule import Request

_MOST_TRIES = 12
_MOST_WORDS = 2048
_LARGEST_VOCABULARY = 1 << 20


@dataclass(frozen=True, slots=True)
class TextPrompts:
    """Words that are a token each, also side by side.

    `count(text)` is how many tokens the server makes of a prompt's text: with a chat template, of
    the whole chat.
    """

    words: Sequence[str]
    count: Callable[[str], int]
    salt: int

    def text(self, request: Request) -> str:
        """Return the request's prompt, which has exactly its number of tokens.

        Raises:
            ConfigError: this tokenizer makes no text of so many.
        """
        picks = IdPrompts(0, len(self.words), self.salt).ids(request).tolist()
        wanted = request.prompt_tokens
        keep = wanted
        for _ in range(_MOST_TRIES):
            text = "".join(self.words[pick] for pick in self._stretched(picks, keep))
            got = self.count(text)
            if got == wanted:
                return text
            if keep + wanted - got < 1:
                raise ConfigError(
                    f"prompt of {wanted} tokens: {got - keep} are the template's alone;"
                    " allowed: longer prompts"
                )
            keep += wanted - got
        raise ConfigError(
            f"prompt of {wanted} tokens: the tokenizer makes {got} of its text; use token ids"
        )

    @staticmethod
    def _stretched(picks: list[int], keep: int) -> list[int]:
        return picks[:keep] + picks[: max(0, keep - len(picks))]


def load_text_prompts(folder: Path, *, chat: bool, salt: int) -> TextPrompts:
    """Read the tokenizer, and for chats the template, of a model's directory.

    Raises:
        ConfigError: there is none, or none of its tokens stands for a word of its own.
    """
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise ConfigError(f"tokenizer: {folder}: {error}") from None
    counter = _chat_counter(tokenizer, folder) if chat else _counter(tokenizer)
    return TextPrompts(_words(tokenizer), counter, salt)


def _counter(tokenizer: Tokenizer) -> Callable[[str], int]:
    return lambda text: len(tokenizer.encode_batch_fast([text], add_special_tokens=True)[0].ids)


def _chat_counter(tokenizer: Tokenizer, folder: Path) -> Callable[[str], int]:
    config = _read_json(folder / "tokenizer_config.json")
    file = folder / "chat_template.jinja"
    source = file.read_text() if file.is_file() else template_source(config)
    if not source:
        raise ConfigError(f"tokenizer: {folder}: no chat template; allowed: api completions")
    template = compile_template(source, now=lambda: datetime.datetime.now().astimezone())
    special = special_tokens(config)

    def count(text: str) -> int:
        messages = [{"role": "user", "content": text}]
        chat = render_chat(template, messages, tools=None, variables=dict(special))
        return len(tokenizer.encode_batch_fast([chat], add_special_tokens=False)[0].ids)

    return count


def _words(tokenizer: Tokenizer) -> list[str]:
    """Return words, each with a space before it, that stay one token beside any other."""
    size = min(tokenizer.get_vocab_size(), _LARGEST_VOCABULARY)
    found: list[str] = []
    for token in range(size):
        word = tokenizer.decode([token], skip_special_tokens=False).strip()
        if word.isascii() and word.isalnum():
            pair = tokenizer.encode(f" {word} {word}", add_special_tokens=False).ids
            if pair == [token, token]:
                found.append(f" {word}")
        if len(found) >= _MOST_WORDS:
            break
    if len(found) < 2:
        raise ConfigError('tokenizer: no words of one token; use token ids (input = "ids")')
    return found


def _read_json(file: Path) -> dict[str, Any]:
    value = json.loads(file.read_text()) if file.is_file() else {}
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: not a JSON object")
    return value
