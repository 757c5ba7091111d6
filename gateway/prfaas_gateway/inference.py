"""A client's request for tokens: parsed, checked, and ready to be sent to engines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prfaas_gateway.engine_fields import SET_BY_GATEWAY, check_fields
from prfaas_gateway.errors import RequestError
from prfaas_gateway.limits import check_limits, named_tokens

JsonObject = dict[str, Any]


class Api(StrEnum):
    """The paths that take prompts, the same at the gateway and at an engine."""

    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"
    GENERATE = "/generate"


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt to be tokenized as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt that the client tokenized."""

    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the model's chat template; `options` are further template variables."""

    messages: Sequence[JsonObject]
    tools: Sequence[JsonObject] | None
    options: Mapping[str, Any]


Prompt = TextPrompt | TokenPrompt | ChatPrompt


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One prompt for one answer.

    `body` is what both legs share, as JSON text; `decode_body` what only the decode leg gets.
    `named_tokens` are the token ids beside the prompt, such as those with a bias.
    `salt` separates prefix caches that the client wants apart. `max_output_tokens` is None where
    only the context limits the output. With several answers, each is asked for by itself, and
    `seed`, where there is one, is not in `body`.
    """

    api: Api
    model: str
    stream: bool
    prompt: Prompt
    max_output_tokens: int | None
    salt: str
    named_tokens: tuple[int, ...]
    body: bytes
    decode_body: JsonObject
    num_answers: int = 1
    seed: int | None = None


TOO_DEEP = "the body is nested too deep"
_PER_LEG = ("stream", "stream_options", "rid")
_PER_ANSWER = ("n", "seed")

MAX_ANSWERS = 16
"""Answers to one prompt: each is a request of its own to the engines."""

# What SGLang 0.5.23 takes where the client says nothing.
_DEFAULT_MAX_TOKENS: dict[Api, int | None] = {
    Api.COMPLETIONS: 16,
    Api.CHAT: None,
    Api.GENERATE: 128,
}


def parse_inference(api: Api, raw: bytes) -> InferenceRequest:
    """Parse and check a request's body.

    Raises:
        RequestError: naming the field and what is allowed.
    """
    try:
        return _parse_inference(api, raw)
    except RecursionError:
        raise RequestError(TOO_DEEP) from None


def _parse_inference(api: Api, raw: bytes) -> InferenceRequest:
    body = parse_object(raw)
    check_fields(body)
    num_answers = _parse_num_answers(api, body)
    check_limits(body)
    stream = typed_field(body, "stream", bool, default=False)
    decode_body: JsonObject = {"stream": stream}
    if body.get("stream_options") is not None:
        decode_body["stream_options"] = typed_field(body, "stream_options", dict, default={})
    prompt = _parse_prompt(api, body)
    left_out = _PER_LEG + SET_BY_GATEWAY + (_PER_ANSWER if num_answers > 1 else ())
    # To OpenAI's clients null means the default; SGLang refuses it for some fields.
    shared = {k: v for k, v in body.items() if k not in left_out and v is not None}
    return InferenceRequest(
        api=api,
        model=typed_field(body, "model", str, default=""),
        stream=stream,
        prompt=prompt,
        max_output_tokens=_parse_max_tokens(api, body),
        salt=f"{_salt(body, 'cache_salt')}\0{_salt(body, 'extra_key')}",
        named_tokens=named_tokens(body),
        body=json.dumps(shared, separators=(",", ":")).encode(),
        decode_body=decode_body,
        num_answers=num_answers,
        seed=typed_field(body, "seed", int, default=None) if num_answers > 1 else None,
    )


def parse_object(raw: bytes) -> JsonObject:
    """Return a body that is a JSON object. Raises: RequestError."""
    try:
        body = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise RequestError("the body is not a JSON object")
    return body


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def typed_field(body: JsonObject, name: str, kind: type, *, default: Any) -> Any:
    """Return a field of a body, `default` where it is missing or null. Raises: RequestError."""
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        raise RequestError(f"{name}: expected {kind.__name__}, got {_show(value)}", param=name)
    return value


def _show(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _salt(body: JsonObject, name: str) -> str:
    salt = str(typed_field(body, name, str, default=""))
    check_encodable(salt, name)
    return salt


def _parse_num_answers(api: Api, body: JsonObject) -> int:
    holder = body
    if api is Api.GENERATE:
        holder = typed_field(body, "sampling_params", dict, default={})
    for name in ("n", "best_of") if api is Api.GENERATE else ("best_of",):
        if typed_field(holder, name, int, default=1) != 1:
            raise RequestError(f"{name}: only 1 answer per request is supported", param=name)
    num_answers = int(typed_field(holder, "n", int, default=1))
    if not 1 <= num_answers <= MAX_ANSWERS:
        raise RequestError(f"n = {num_answers}: 1 to {MAX_ANSWERS}", param="n")
    return num_answers


def _parse_max_tokens(api: Api, body: JsonObject) -> int | None:
    if api is Api.GENERATE:
        body = typed_field(body, "sampling_params", dict, default={})
        names = ["max_new_tokens"]
    else:
        names = ["max_completion_tokens", "max_tokens"] if api is Api.CHAT else ["max_tokens"]
    for name in names:
        value = typed_field(body, name, int, default=None)
        if value is not None:
            if value < (0 if api is Api.GENERATE else 1):
                raise RequestError(f"{name} = {value}: must be positive", param=name)
            return int(value)
    return _DEFAULT_MAX_TOKENS[api]


def _parse_prompt(api: Api, body: JsonObject) -> Prompt:
    if api is not Api.GENERATE and body.get("input_ids") is not None:
        raise RequestError("input_ids is not supported", param="input_ids")
    if api is Api.CHAT:
        return parse_chat(body)
    if api is Api.COMPLETIONS:
        return _parse_completion_prompt(body)
    text, tokens = body.get("text"), body.get("input_ids")
    if (text is None) == (tokens is None):
        raise RequestError("exactly one of text and input_ids is needed", param="text")
    if text is not None:
        if isinstance(text, list):
            raise RequestError("text: only one prompt per request is supported", param="text")
        return _text_prompt(text, "text")
    return token_prompt(tokens, "input_ids")


def _parse_completion_prompt(body: JsonObject) -> Prompt:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise RequestError(
                f"prompt: {len(prompt)} prompts; only one per request is supported", param="prompt"
            )
        # One prompt in a list is that prompt, and engines give the same answer for both forms.
        body["prompt"] = prompt = prompt[0]
    if isinstance(prompt, list):
        return token_prompt(prompt, "prompt")
    return _text_prompt(prompt, "prompt")


def _text_prompt(text: Any, param: str) -> TextPrompt:
    if not isinstance(text, str):
        raise RequestError(f"{param}: expected text or tokens, got {_show(text)}", param=param)
    if not text:
        raise RequestError(f"{param}: empty", param=param)
    check_encodable(text, param)
    return TextPrompt(text)


def check_encodable(text: str, param: str) -> None:
    """Raise RequestError where JSON brought half of a surrogate pair, which no text has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{param}: not valid Unicode text", param=param) from None


def token_prompt(tokens: Any, param: str) -> TokenPrompt:
    """Return a prompt of token ids. Raises: RequestError, if they are none."""
    if not isinstance(tokens, list) or any(type(token) is not int for token in tokens):
        raise RequestError(f"{param}: expected one list of token ids", param=param)
    if not tokens:
        raise RequestError(f"{param}: empty", param=param)
    if min(tokens) < 0 or max(tokens) >= 1 << 31:
        raise RequestError(f"{param}: token ids are 0 to {(1 << 31) - 1}", param=param)
    return TokenPrompt(tokens)


def parse_chat(body: JsonObject) -> ChatPrompt:
    """Return the messages of a body. Raises: RequestError."""
    messages = typed_field(body, "messages", list, default=[])
    if not messages:
        raise RequestError("messages: empty", param="messages")
    tools = typed_field(body, "tools", list, default=None)
    options = typed_field(body, "chat_template_kwargs", dict, default={})
    return ChatPrompt([_parse_message(item) for item in messages], tools or None, options)


def _parse_message(message: Any) -> JsonObject:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError("messages: each needs a role", param="messages")
    content = message.get("content")
    if isinstance(content, list):
        content = " ".join(_parse_part(part) for part in content)
    elif content is not None and not isinstance(content, str):
        raise RequestError(
            f"messages: content: expected text, got {_show(content)}", param="messages"
        )
    check_encodable(content or "", "messages")
    return {**message, "content": content or ""}


def _parse_part(part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise RequestError("messages: only text content is supported", param="messages")
