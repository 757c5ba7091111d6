"""Text to tokens and back, with the tokenizer and the chat template of a model's directory."""

import datetime
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from tokenizers import Tokenizer

from prfaas.chat_template import compile_template, render_chat, special_tokens, template_source
from prfaas.errors import ConfigError

_MOST_SPOKEN = 4096


class Vocabulary:
    """What a twin reads and speaks.

    `spoken` are the tokens that outputs are made of: those that are a text of their own, so that
    text may be made token by token.
    """

    def __init__(self, tokenizer: Tokenizer, template: jinja2.Template | None, config: Any) -> None:
        self.size = tokenizer.get_vocab_size()
        self._tokenizer = tokenizer
        self._template = template
        self._special = special_tokens(config)
        texts = {token: tokenizer.decode([token]) for token in range(min(self.size, 65536))}
        spoken = [t for t, text in texts.items() if text and text.isascii() and text.isprintable()]
        self.spoken: Sequence[int] = spoken[:_MOST_SPOKEN]
        self._texts = {token: texts[token] for token in self.spoken}
        if not self.spoken:
            raise ConfigError("the tokenizer has no token that is a text of its own")

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, as of a completion's prompt."""
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=True)[0].ids
        return ids

    def encode_chat(self, messages: list[dict[str, Any]], options: dict[str, Any]) -> list[int]:
        """Return the tokens of a chat.

        Raises:
            ValueError: the template does not take these messages, or there is none.
        """
        if self._template is None:
            raise ValueError("the model has no chat template")
        tools = options.pop("tools", None)
        try:
            text = render_chat(
                self._template, messages, tools=tools, variables={**self._special, **options}
            )
        except Exception as error:  # a template may fail in any way on a client's messages
            raise ValueError(str(error)) from None
        fast = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = fast[0].ids
        return ids

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of output tokens."""
        return "".join(self._texts.get(token, "") for token in tokens)


@lru_cache(maxsize=8)
def load_vocabulary(model_path: str) -> Vocabulary:
    """Read a model's directory; many twins of one process share what was read.

    Raises:
        ConfigError: the directory has no usable tokenizer.
    """
    folder = Path(model_path)
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        config = _read_json(folder / "tokenizer_config.json")
        file = folder / "chat_template.jinja"
        source = file.read_text() if file.is_file() else template_source(config)
        template = compile_template(source, now=_now) if source else None
        return Vocabulary(tokenizer, template, config)
    except ConfigError:
        raise
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise ConfigError(f"engine.model_path: {folder}: {error}") from None


def _read_json(file: Path) -> dict[str, Any]:
    value = json.loads(file.read_text()) if file.is_file() else {}
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: not a JSON object")
    return value


def _now() -> datetime.datetime:
    return datetime.datetime.now().astimezone()
