"""Bodies of requests, and what the events of a streamed answer say.

Source: sglang 0.5.23 srt/managers/io_struct.py, srt/entrypoints/openai/protocol.py.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from prfaas_loadtest.workloads.prompts import Ids

_DATA = b"data:"
_DONE = b"[DONE]"


class Api(StrEnum):
    """An API of the target."""

    GENERATE = "generate"
    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """Where it is."""
        return _PATHS[self]


_PATHS = {
    Api.GENERATE: "/generate",
    Api.COMPLETIONS: "/v1/completions",
    Api.CHAT: "/v1/chat/completions",
}


def body_of(api: Api, prompt: "Ids | str", output_tokens: int, model: str) -> bytes:
    """Return the body of a streamed, greedy request for exactly so many tokens.

    Raises:
        ValueError: a chat of token ids.
    """
    as_text = isinstance(prompt, str)
    if api is Api.GENERATE:
        sampling = {"temperature": 0, "max_new_tokens": output_tokens, "ignore_eos": True}
        body: dict[str, Any] = {"sampling_params": sampling, "stream": True}
        body["text" if as_text else "input_ids"] = prompt
        return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    body = {"temperature": 0, "max_tokens": output_tokens, "ignore_eos": True, "stream": True}
    body["stream_options"] = {"include_usage": True}
    if model:
        body["model"] = model
    if api is Api.COMPLETIONS:
        body["prompt"] = prompt
    elif as_text:
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        raise ValueError("a chat takes no token ids")
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


@dataclass(slots=True)
class AnswerReader:
    """Reads the lines of one streamed answer; `at_s` holds when each event with tokens came.

    `output_tokens` is what the server counted, or where it did not, the events. `done` is True
    after the line that ends a stream.
    """

    api: Api
    at_s: list[float] = field(default_factory=list)
    output_tokens: int = 0
    done: bool = False
    error: str = ""
    _counted: bool = False

    def line(self, line: bytes, now_s: float) -> None:
        """Take a line, which came at `now_s`."""
        if not line.startswith(_DATA):
            return
        data = line[len(_DATA) :].strip()
        if data == _DONE:
            self.done = True
            return
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            self.error = self.error or f"an event is not JSON: {data[:80]!r}"
            return
        self._event(event if isinstance(event, dict) else {}, now_s)

    def _event(self, event: dict[str, Any], now_s: float) -> None:
        if event.get("error") is not None:
            self.error = self.error or _message(event["error"])
            return
        if self.api is Api.GENERATE:
            self._generated(event, now_s)
            return
        usage = event.get("usage")
        if isinstance(usage, dict) and type(usage.get("completion_tokens")) is int:
            self.output_tokens, self._counted = usage["completion_tokens"], True
        choices = event.get("choices")
        if isinstance(choices, list) and choices and _holds_text(choices[0]):
            self.at_s.append(now_s)
            if not self._counted:
                self.output_tokens += 1

    def _generated(self, event: dict[str, Any], now_s: float) -> None:
        meta = event.get("meta_info")
        count = meta.get("completion_tokens") if isinstance(meta, dict) else None
        if type(count) is int and count > self.output_tokens:
            self.output_tokens = count
            self.at_s.append(now_s)


def _holds_text(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
    return isinstance(text, str) and bool(text)


def _message(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("code") or "") + " " + str(error.get("message") or "")[:200]
    return str(error)[:200]


def refusal(body: bytes) -> str:
    """Return what an answer that is no stream says is wrong, in a line."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    error = value.get("error") if isinstance(value, dict) else None
    text = _message(error) if error is not None else body[:200].decode(errors="replace")
    return " ".join(text.split())
