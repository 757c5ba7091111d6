"""Is what an engine said an answer, or an abort in the clothes of one?

SGLang 0.5.23 reports a failed KV transfer, and other aborts, in four forms: an HTTP status with an
error body (not streaming), an SSE event `{"error": {...}}`, and `finish_reason` "abort" in a choice
or in `meta_info` of a body or event. Source: sglang srt/managers/tokenizer_manager.py
`_handle_abort_finish_reason`, srt/entrypoints/openai/serving_completions.py.
"""

import json
from dataclasses import dataclass
from typing import Any

_UNKNOWN_CODE = 500


@dataclass(frozen=True, slots=True)
class Abort:
    """The engine gave up; `code` is the HTTP status it meant."""

    code: int
    message: str

    @property
    def is_clients_fault(self) -> bool:
        """Whether the same request would fail again anywhere."""
        return 400 <= self.code < 500


def find_abort(body: bytes) -> Abort | None:
    """Return the abort that a JSON body tells of, None for a real answer.

    >>> find_abort(b'{"choices": [{"text": "hi", "finish_reason": "length"}]}')
    >>> find_abort(b'{"error": {"message": "lost", "code": 500}}')
    Abort(code=500, message='lost')
    """
    if b"abort" not in body and b"error" not in body:
        return None
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    return _abort_of_error(answer) or _abort_of_choices(answer) or _abort_of_meta(answer)


def find_abort_in_events(received: bytes) -> Abort | None:
    """Return the first abort that some SSE events tell of, None where all are real.

    >>> event = b'data: {"error": {"message": "lost", "code": 503}}'
    >>> find_abort_in_events(event + b"\\n\\ndata: [DONE]").code
    503
    """
    for event in received.split(b"\n\n"):
        data = b"\n".join(
            line.removeprefix(b"data:").strip()
            for line in event.splitlines()
            if line.startswith(b"data:")
        )
        abort = find_abort(data) if data.startswith(b"{") else None
        if abort:
            return abort
    return None


def _abort_of_error(answer: dict[str, Any]) -> Abort | None:
    error = answer if answer.get("object") == "error" else answer.get("error")
    if isinstance(error, str):
        return Abort(_UNKNOWN_CODE, error)
    if not isinstance(error, dict):
        return None
    return Abort(_code(error.get("code")), str(error.get("message", "no message")))


def _abort_of_choices(answer: dict[str, Any]) -> Abort | None:
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return None
    for choice in choices:
        if isinstance(choice, dict) and choice.get("finish_reason") == "abort":
            return Abort(_UNKNOWN_CODE, "the engine aborted the request")
    return None


def _abort_of_meta(answer: dict[str, Any]) -> Abort | None:
    meta = answer.get("meta_info")
    reason = meta.get("finish_reason") if isinstance(meta, dict) else None
    if not isinstance(reason, dict) or reason.get("type") != "abort":
        return None
    return Abort(_code(reason.get("status_code")), str(reason.get("message", "no message")))


def _code(value: Any) -> int:
    if isinstance(value, int) and 400 <= value < 600:
        return value
    return _UNKNOWN_CODE
