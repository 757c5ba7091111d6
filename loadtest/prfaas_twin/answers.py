"""The forms of answers: SGLang's JSON for each API, whole and as events of a stream.

Source: sglang 0.5.23, answers of a PD pair to the same requests (tests/e2e/test_twin_contract.py).
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import orjson

from prfaas_twin.ask import Api
from prfaas_twin.generation import Finish, Generation

Json = dict[str, Any]

DONE = b"data: [DONE]\n\n"
_WEIGHTS = "default"


class Form(ABC):
    """How one request is answered; keeps what of the output was sent."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._created = int(time.time())
        self.sent = 0

    @abstractmethod
    def whole(self) -> Json:
        """Return the answer of a request that does not stream."""

    @abstractmethod
    def progress(self) -> Iterator[Json]:
        """Yield the events for the tokens that came since the last call."""

    @abstractmethod
    def last(self) -> Iterator[Json]:
        """Yield the events that follow when all tokens are sent."""

    def events(self) -> Iterator[bytes]:
        """Yield what can be sent now, as Server-Sent Events."""
        ended = self._generation.finish is not None
        for event in self.progress():
            yield event_of(event)
        if ended:
            for event in self.last():
                yield event_of(event)
            yield DONE

    def _weights(self) -> list[Json]:
        count = len(self._generation.output_ids)
        return [{"version": _WEIGHTS, "start": 0, "end": count}]


class GenerateForm(Form):
    """`/generate`: every event holds the whole output so far."""

    def whole(self) -> Json:
        """Return the answer of a request that does not stream."""
        return self._body(self._generation.finish)

    def progress(self) -> Iterator[Json]:
        """Yield one event with all that there is; the last one is `last`'s."""
        generation = self._generation
        if generation.finish is None and len(generation.output_ids) > self.sent:
            yield self._body(None)
            self.sent = len(generation.output_ids)

    def last(self) -> Iterator[Json]:
        """Yield the event that says how it ended."""
        yield self._body(self._generation.finish)

    def _body(self, finish: Finish | None) -> Json:
        generation = self._generation
        count, cached = len(generation.output_ids), generation.cached_tokens
        meta: Json = {
            "id": generation.ask.rid,
            "finish_reason": finish.to_json() if finish else None,
            "prompt_tokens": generation.ask.prompt.num_tokens,
            "weight_version": _WEIGHTS,
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "completion_tokens": count,
            "cached_tokens": cached,
        }
        if finish:
            meta["weight_versions"] = self._weights()
        meta["cached_tokens_details"] = {"device": cached, "host": 0} if cached else None
        meta["dp_rank"] = None
        if finish:
            meta["e2e_latency"] = time.monotonic() - generation.began_s
        if not self.sent:
            meta["response_sent_to_client_ts"] = time.time()
        return {
            "text": generation.text(),
            "output_ids": list(generation.output_ids),
            "meta_info": meta,
        }


class OpenAiForm(Form):
    """What completions and chats have in common; an event holds what is new."""

    kind: str
    chunk_kind: str
    #: What `usage` has beside the counts, whole and in a stream.
    more_usage: Json
    more_stream_usage: Json

    def whole(self) -> Json:
        """Return the answer of a request that does not stream."""
        count = len(self._generation.output_ids)
        choice = {"index": 0, **self._message()} | self._ending(self._finish_word())
        metadata = {"weight_version": _WEIGHTS, "weight_versions": self._weights()}
        usage = self._usage(count) | {"completion_tokens_details": None}
        return self._head(self.kind) | {"choices": [choice], "usage": usage, "metadata": metadata}

    def _usage(self, count: int) -> Json:
        prompt_tokens = self._generation.ask.prompt.num_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + count,
            "completion_tokens": count,
            "prompt_tokens_details": None,
            "reasoning_tokens": 0,
        }

    def _head(self, kind: str) -> Json:
        ask = self._generation.ask
        return {"id": ask.rid, "object": kind, "created": self._created, "model": ask.model}

    def _ending(self, word: str | None) -> Json:
        return {"logprobs": None, "finish_reason": word, "matched_stop": None}

    def _finish_word(self) -> str:
        finish = self._generation.finish
        return finish.type if finish else "length"

    def _new_text(self) -> str:
        text = self._generation.text(self.sent)
        self.sent = len(self._generation.output_ids)
        return text

    def _is_new(self) -> bool:
        return len(self._generation.output_ids) > self.sent

    @abstractmethod
    def _message(self) -> Json:
        """Return the choice's text in a whole answer."""


class CompletionForm(OpenAiForm):
    """`/v1/completions`."""

    kind = "text_completion"

    def progress(self) -> Iterator[Json]:
        """Yield an event with the new text; the one that ends is `last`'s."""
        if self._generation.finish is None and self._is_new():
            yield self._event(self._new_text(), None)

    def last(self) -> Iterator[Json]:
        """Yield the end, and the usage where it was asked for."""
        yield self._event(self._new_text(), self._finish_word())
        if self._generation.ask.include_usage:
            usage = self._usage(len(self._generation.output_ids))
            del usage["prompt_tokens_details"]
            yield self._head(self.kind) | {"choices": [], "usage": usage}

    def _message(self) -> Json:
        return {"text": self._generation.text()}

    def _event(self, text: str, word: str | None) -> Json:
        choice = {"index": 0, "text": text} | self._ending(word)
        return self._head(self.kind) | {"choices": [choice], "usage": None}


class ChatForm(OpenAiForm):
    """`/v1/chat/completions`."""

    kind = "chat.completion"
    _chunk = "chat.completion.chunk"
    _has_role = False

    def progress(self) -> Iterator[Json]:
        """Yield the role once, and the new text."""
        if not self._has_role:
            self._has_role = True
            yield self._event({"role": "assistant", "content": ""}, None)
        if self._is_new():
            yield self._event({"content": self._new_text()}, None)

    def last(self) -> Iterator[Json]:
        """Yield the end, and the usage where it was asked for."""
        yield self._event({}, self._finish_word())
        if self._generation.ask.include_usage:
            usage = self._usage(len(self._generation.output_ids))
            usage["completion_tokens_details"] = None
            yield self._head(self._chunk) | {"choices": [], "usage": usage}

    def _message(self) -> Json:
        content = self._generation.text()
        return {"message": {"role": "assistant", "content": content, "reasoning_content": None}}

    def _event(self, delta: Json, word: str | None) -> Json:
        choice = {"index": 0, "delta": {"reasoning_content": None} | delta} | self._ending(word)
        return self._head(self._chunk) | {"choices": [choice]}


def form_of(generation: Generation) -> Form:
    """Return the form of a request's answer."""
    match generation.ask.api:
        case Api.GENERATE:
            return GenerateForm(generation)
        case Api.COMPLETIONS:
            return CompletionForm(generation)
        case Api.CHAT:
            return ChatForm(generation)


def failure_events(generation: Generation) -> Iterator[bytes]:
    """Yield the events of a stream that failed."""
    finish = generation.finish
    assert finish is not None
    if generation.ask.api is Api.GENERATE:
        yield from GenerateForm(generation).events()
        return
    yield event_of({"error": openai_error(finish.message, "INTERNAL_SERVER_ERROR", 500)})
    yield DONE


def openai_error(message: str, kind: str, status: int) -> Json:
    """Return an error in the form of SGLang's OpenAI API."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def event_of(value: Json) -> bytes:
    """Return one Server-Sent Event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"
