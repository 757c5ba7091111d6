"""Several answers to one prompt as one (`n` of OpenAI's API): indices, usage, one end."""

import json
from collections.abc import Sequence
from typing import Any

_DONE = b"data: [DONE]\n\n"


def merge_answers(bodies: Sequence[bytes]) -> bytes:
    """Return whole answers as one, whose choices stand in order.

    Raises:
        ValueError: a body is no answer.
    """
    answers = [json.loads(body) for body in bodies]
    choices = []
    for index, answer in enumerate(answers):
        if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
            raise ValueError("no choices in the answer")
        choices += [_numbered(choice, index) for choice in answer["choices"]]
    merged = {**answers[0], "choices": choices}
    usages = [answer["usage"] for answer in answers if isinstance(answer.get("usage"), dict)]
    if usages:
        merged["usage"] = merge_usages(usages)
    return _dumped(merged)


def merge_usages(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what all answers used: the prompt counts once.

    >>> merge_usages([{"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}] * 2)
    {'prompt_tokens': 5, 'completion_tokens': 4, 'total_tokens': 9}
    """
    merged = dict(usages[0])
    completion_tokens = sum(_count(usage, "completion_tokens") for usage in usages)
    merged["completion_tokens"] = completion_tokens
    merged["total_tokens"] = _count(merged, "prompt_tokens") + completion_tokens
    return merged


class EventMerger:
    """Merges the events of streams: each is sent at once, with its stream's index."""

    def __init__(self, num_streams: int) -> None:
        self._rest = [b""] * num_streams
        self._id: Any = None
        self._usages: list[dict[str, Any]] = []
        self._usage_event: dict[str, Any] = {}

    def take(self, index: int, received: bytes) -> bytes:
        """Take the next bytes of a stream; return the events to send."""
        *events, self._rest[index] = (self._rest[index] + received).split(b"\n\n")
        return b"".join(self._event(index, event) for event in events)

    def end(self) -> bytes:
        """Return the last events, when all streams have ended."""
        if not self._usages:
            return _DONE
        event = {**self._usage_event, "usage": merge_usages(self._usages)}
        return b"data: " + _dumped(event) + b"\n\n" + _DONE

    def _event(self, index: int, event: bytes) -> bytes:
        data = event.strip().removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return b""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return event + b"\n\n"
        choices = value.get("choices") if isinstance(value, dict) else None
        if not isinstance(choices, list):
            return event + b"\n\n"
        self._id = value.get("id") if self._id is None else self._id
        if "id" in value:
            value["id"] = self._id
        if not choices and isinstance(value.get("usage"), dict):
            self._usages.append(value["usage"])
            self._usage_event = value
            return b""
        value["choices"] = [_numbered(choice, index) for choice in choices]
        return b"data: " + _dumped(value) + b"\n\n"


def _numbered(choice: Any, index: int) -> Any:
    return {**choice, "index": index} if isinstance(choice, dict) else choice


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) else 0


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
