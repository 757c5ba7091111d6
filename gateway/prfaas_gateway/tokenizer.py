"""The model's own tokenizer and chat template: the gateway counts what the engine counts."""

import asyncio
import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from tokenizers import Tokenizer

from prfaas.blocks import HashedPrompt
from prfaas.chat_template import (
    compile_template,
    render_chat,
    special_tokens,
    template_source,
)
from prfaas.errors import ConfigError
from prfaas_gateway.errors import RequestError
from prfaas_gateway.inference import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from prfaas_gateway.limits import check_vocabulary

_LONG_PROMPT_BYTES = 4096
"""Longer prompts are tokenized in a thread: the event loop must not wait for them."""


@dataclass(frozen=True, slots=True)
class ModelTokenizer:
    """A tokenizer and, where the model has one, its chat template with its special tokens."""

    tokenizer: Any
    template: jinja2.Template | None
    special_tokens: Mapping[str, str]
    vocabulary: int

    @classmethod
    def load(cls, model_path: str) -> "ModelTokenizer":
        """Read `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` of a model.

        Raises:
            ConfigError: the directory has no usable tokenizer.
        """
        folder = Path(model_path)
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise ConfigError(f"gateway.model_path: {file} does not exist")
        try:
            tokenizer = Tokenizer.from_file(str(file))
            config = _read_config(folder / "tokenizer_config.json")
            template = _load_template(folder, config)
        except Exception as error:  # the tokenizers library raises bare Exceptions
            raise ConfigError(f"gateway.model_path: {folder}: {error}") from None
        vocabulary = _vocabulary(folder / "config.json") or tokenizer.get_vocab_size()
        return cls(tokenizer, template, special_tokens(config), vocabulary)

    async def encode(self, prompt: Prompt, *, namespace: str) -> HashedPrompt:
        """Return the prompt's tokens, hashed; long prompts do not block the event loop.

        Raises:
            RequestError: the chat template refuses the messages, or there is no template.
        """
        if _is_long(prompt):
            return await asyncio.to_thread(self.encode_now, prompt, namespace=namespace)
        return self.encode_now(prompt, namespace=namespace)

    def encode_now(self, prompt: Prompt, *, namespace: str) -> HashedPrompt:
        """Return the prompt's tokens, hashed.

        Raises:
            RequestError: the chat template refuses the messages, or there is no template, or a
                token id is not in the vocabulary.
        """
        match prompt:
            case TokenPrompt():
                tokens = prompt.tokens
                check_vocabulary(tokens, self.vocabulary)
            case TextPrompt():
                tokens = self._token_ids(prompt.text, add_special_tokens=True)
            case ChatPrompt():
                tokens = self._token_ids(self._render(prompt), add_special_tokens=False)
        return HashedPrompt.of(tokens, namespace=namespace)

    async def token_ids(
        self, prompt: TextPrompt | ChatPrompt, *, add_special_tokens: bool = True
    ) -> list[int]:
        """Return a prompt's tokens; special ones are added to a text only.

        Raises:
            RequestError: the chat template refuses the messages, or there is no template.
        """
        if _is_long(prompt):
            return await asyncio.to_thread(self._ids_of, prompt, add_special_tokens)
        return self._ids_of(prompt, add_special_tokens)

    def _ids_of(self, prompt: TextPrompt | ChatPrompt, add_special_tokens: bool) -> list[int]:
        match prompt:
            case TextPrompt():
                return self._token_ids(prompt.text, add_special_tokens=add_special_tokens)
            case ChatPrompt():
                return self._token_ids(self._render(prompt), add_special_tokens=False)

    async def text_of(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of tokens.

        Raises:
            RequestError: a token id is not in the vocabulary.
        """
        check_vocabulary(tokens, self.vocabulary, param="tokens")
        text: str = await asyncio.to_thread(
            self.tokenizer.decode, list(tokens), skip_special_tokens=skip_special_tokens
        )
        return text

    def _token_ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        # The batch call leaves out the offsets, which take half of the time, and the GIL.
        fast = self.tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = fast[0].ids
        return ids

    def _render(self, prompt: ChatPrompt) -> str:
        if self.template is None:
            raise RequestError("the model has no chat template", param="messages")
        try:
            return render_chat(
                self.template,
                prompt.messages,
                tools=prompt.tools,
                variables={**self.special_tokens, **prompt.options},
            )
        except Exception as error:  # a template may fail in any way on a client's messages
            raise RequestError(f"messages: the chat template: {error}", param="messages") from None


def _is_long(prompt: Prompt) -> bool:
    match prompt:
        case TextPrompt():
            return len(prompt.text) > _LONG_PROMPT_BYTES
        case TokenPrompt():
            return len(prompt.tokens) > _LONG_PROMPT_BYTES
        case ChatPrompt():
            return _weight([prompt.messages, prompt.tools, prompt.options]) > _LONG_PROMPT_BYTES


def _weight(value: Any) -> int:
    """Return about how many bytes of JSON a value is; counts no further than where it is long."""
    weight, left = 0, [value]
    while left and weight <= _LONG_PROMPT_BYTES:
        item = left.pop()
        weight += 8 + (len(item) if isinstance(item, str) else 0)
        if isinstance(item, Mapping):
            weight += sum(len(key) for key in item)
            left += item.values()
        elif isinstance(item, Sequence) and not isinstance(item, str):
            left += item
    return weight


def _read_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    config = json.loads(file.read_text())
    if not isinstance(config, dict):
        raise ConfigError(f"{file.name}: not a JSON object")
    return config


def _vocabulary(file: Path) -> int:
    """Return the rows of the model's embedding, 0 if its configuration does not say."""
    config = _read_config(file)
    nested = config.get("text_config")
    size = (config | nested if isinstance(nested, dict) else config).get("vocab_size")
    return size if isinstance(size, int) else 0


def _load_template(folder: Path, config: Mapping[str, Any]) -> jinja2.Template | None:
    file = folder / "chat_template.jinja"
    source = file.read_text() if file.is_file() else template_source(config)
    return compile_template(source, now=_now) if source else None


def _now() -> datetime.datetime:
    return datetime.datetime.now().astimezone()


class TokenizerShelf:
    """The tokenizers in use, each loaded once. `fixed_path` serves every model, if given."""

    def __init__(self, fixed_path: str) -> None:
        self._fixed_path = fixed_path
        self._loaded: dict[str, ModelTokenizer] = {}

    def preload(self) -> None:
        """Load the fixed tokenizer.

        Raises:
            ConfigError: its directory has no usable tokenizer.
        """
        if self._fixed_path:
            self._loaded[self._fixed_path] = ModelTokenizer.load(self._fixed_path)

    async def get(self, model_path: str) -> ModelTokenizer:
        """Return the tokenizer for a node that serves `model_path`.

        Raises:
            ConfigError: its directory has no usable tokenizer.
        """
        path = self._fixed_path or model_path
        if path not in self._loaded:
            self._loaded[path] = await asyncio.to_thread(ModelTokenizer.load, path)
        return self._loaded[path]
