"""What clients ask for: the bodies of SGLang's three APIs for tokens.

Source: sglang 0.5.23 srt/managers/io_struct.py, srt/entrypoints/openai/protocol.py.
"""

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from prfaas.blocks import HashedPrompt
from prfaas_twin.vocabulary import Vocabulary

Json = dict[str, Any]

_GENERATE_TOKENS, _COMPLETION_TOKENS = 128, 16
_MAX_ROOM = (1 << 63) - 1


class Api(StrEnum):
    """An API by its path."""

    GENERATE = "/generate"
    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


class BadAskError(ValueError):
    """The client must change its request; `kind` is how SGLang calls that."""

    def __init__(self, message: str, *, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `wanted` is how many output tokens; `room` and the host:port `bootstrap` say
    where its two legs meet."""

    api: Api
    rid: str
    model: str
    prompt: HashedPrompt
    wanted: int
    stream: bool
    include_usage: bool
    room: int
    bootstrap: tuple[str, int]


@dataclass(frozen=True, slots=True)
class AskReader:
    """Reads bodies for one model."""

    model_id: str
    vocabulary: Vocabulary
    context_tokens: int

    def read(self, api: Api, raw: bytes) -> Ask:
        """Return what a body asks for.

        Raises:
            BadAskError: it is wrong.
        """
        body = read_object(raw)
        tokens = _checked_tokens(self._tokens(api, body))
        salts = {key: str(body.get(key) or "") for key in ("cache_salt", "extra_key")}
        prompt = HashedPrompt.of(tokens, namespace=namespace(self.model_id, **salts))
        wanted = self._wanted(api, body, prompt.num_tokens)
        rid = body.get("rid") if isinstance(body.get("rid"), str) else None
        options = body.get("stream_options")
        ask = Ask(
            api=api,
            rid=rid or uuid.uuid4().hex,
            model=str(body.get("model") or self.model_id),
            prompt=prompt,
            wanted=wanted,
            stream=body.get("stream") is True,
            include_usage=isinstance(options, dict) and options.get("include_usage") is True,
            room=_room(body),
            bootstrap=(str(body.get("bootstrap_host") or ""), _port(body)),
        )
        self._check_lengths(ask)
        return ask

    def _tokens(self, api: Api, body: Json) -> Any:
        if api is Api.CHAT:
            return self._chat_tokens(body)
        if api is Api.COMPLETIONS:
            prompt = body.get("prompt")
        else:
            prompt = body.get("input_ids") if body.get("text") is None else body["text"]
        if isinstance(prompt, str):
            return self.vocabulary.encode(prompt)
        if prompt is None:
            raise BadAskError("1 validation error: a prompt is missing", kind="Bad Request")
        return prompt

    def _chat_tokens(self, body: Json) -> list[int]:
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            text = "1 validation error: messages: a list of messages is required"
            raise BadAskError(text, kind="Bad Request")
        if not messages:
            raise BadAskError("Messages cannot be empty.")
        options = body.get("chat_template_kwargs")
        options = dict(options) if isinstance(options, dict) else {}
        try:
            flat = [message | {"content": _flat(message.get("content"))} for message in messages]
            return self.vocabulary.encode_chat(flat, options | {"tools": body.get("tools") or None})
        except ValueError as error:
            raise BadAskError(str(error)) from None

    def _wanted(self, api: Api, body: Json, prompt_tokens: int) -> int:
        """Return how many output tokens to make; without a limit, what the context leaves."""
        holder = body.get("sampling_params") if api is Api.GENERATE else body
        holder = holder if isinstance(holder, dict) else {}
        names = {
            Api.GENERATE: ("max_new_tokens",),
            Api.COMPLETIONS: ("max_tokens",),
            Api.CHAT: ("max_completion_tokens", "max_tokens"),
        }[api]
        for name in names:
            if holder.get(name) is not None:
                return _count(name, holder[name])
        if api is Api.GENERATE:
            return _GENERATE_TOKENS
        return _COMPLETION_TOKENS if api is Api.COMPLETIONS else self.context_tokens - prompt_tokens

    def _check_lengths(self, ask: Ask) -> None:
        prompt_tokens, limit = ask.prompt.num_tokens, self.context_tokens
        if not prompt_tokens:
            raise BadAskError("input_ids cannot be empty.")
        if prompt_tokens >= limit:
            raise BadAskError(
                f"The input ({prompt_tokens} tokens) is longer than the model's context length "
                f"({limit} tokens)."
            )
        if prompt_tokens + ask.wanted > limit:
            raise BadAskError(
                f"Requested token count exceeds the model's maximum context length of {limit} "
                f"tokens. You requested a total of {prompt_tokens + ask.wanted} tokens: "
                f"{prompt_tokens} tokens from the input messages and {ask.wanted} tokens for the "
                "completion. Please reduce the number of tokens in the input messages or the "
                "completion to fit within the limit."
            )
        if not ask.room:
            raise BadAskError(
                "Invalid request: Disaggregated request received without bootstrap room id. "
                f"req.rid={ask.rid!r}"
            )


def read_object(raw: bytes) -> Json:
    """Return the JSON object of a body.

    Raises:
        BadAskError: it is none.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadAskError(
            f"1 validation error: JSON decode error: {error}", kind="Bad Request"
        ) from None
    if not isinstance(body, dict):
        raise BadAskError("1 validation error: the body is not an object", kind="Bad Request")
    return body


def _checked_tokens(tokens: Any) -> "NDArray[np.int64]":
    if not isinstance(tokens, list) or not set(map(type, tokens)) <= {int}:
        text = "1 validation error: the prompt is neither text nor a list of token ids"
        raise BadAskError(text, kind="Bad Request")
    try:
        array = np.array(tokens, dtype=np.int64)
    except OverflowError:
        array = np.array([-1])
    if array.size and not 0 <= array.min() <= array.max() < 1 << 31:
        raise BadAskError("token ids must be 0 or more, and below 2^31")
    return array


def namespace(model_id: str, *, cache_salt: str = "", extra_key: str = "") -> str:
    """Return what keeps prompts apart that must not share a cache: as the gateway has it."""
    return f"{model_id}\0{cache_salt}\0{extra_key}"


def _count(name: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise BadAskError(f"{name} must be a whole number, 0 or more, got {value!r}.")
    return int(value)


def _room(body: Json) -> int:
    room = body.get("bootstrap_room")
    if room is None:
        return 0
    if type(room) is not int or not 0 <= room <= _MAX_ROOM:
        raise BadAskError("1 validation error: bootstrap_room", kind="Bad Request")
    return int(room)


def _port(body: Json) -> int:
    port = body.get("bootstrap_port")
    return port if type(port) is int and 0 < port < 65536 else 0


def _flat(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
