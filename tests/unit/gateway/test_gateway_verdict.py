import json
from typing import Any

import pytest

from prfaas_gateway.verdict import Abort, find_abort, find_abort_in_events


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


ABORTED_META = {
    "text": "",
    "meta_info": {"finish_reason": {"type": "abort", "message": "lost", "status_code": 500}},
}
ABORTED_CHOICE = {"choices": [{"index": 0, "text": "", "finish_reason": "abort"}]}
ERROR = {"error": {"object": "error", "message": "lost", "type": "X", "code": 503}}
FLAT_ERROR = {"object": "error", "message": "lost", "type": "X", "code": 500}


@pytest.mark.parametrize(
    ("answer", "code"),
    [(ABORTED_META, 500), (ABORTED_CHOICE, 500), (ERROR, 503), (FLAT_ERROR, 500)],
)
def test_aborts_are_recognised(answer: Any, code: int) -> None:
    for found in (find_abort(json.dumps(answer).encode()), find_abort_in_events(sse(answer))):
        assert found is not None
        assert found.code == code
        assert not found.is_clients_fault


def test_an_abort_among_events_read_together_is_found() -> None:
    good = {"choices": [{"index": 0, "text": "hi", "finish_reason": None}]}
    assert find_abort_in_events(sse(good, ERROR) + b"data: [DONE]\n\n") is not None
    assert find_abort_in_events(sse(good) + b"data: [DONE]\n\n") is None


def test_a_clients_fault_is_told_apart() -> None:
    found = find_abort(b'{"error": {"message": "too long", "code": 400}}')
    assert found == Abort(400, "too long")
    assert found.is_clients_fault


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": [{"text": "please abort the error", "finish_reason": "stop"}]},
        {"choices": [{"text": '{"error": {"code": 500}}', "finish_reason": "length"}]},
        {"text": "abort", "meta_info": {"finish_reason": {"type": "stop"}}},
        {"text": "abort", "meta_info": {"finish_reason": None}},
        {"text": "abort", "meta_info": None, "error": None},
        {"choices": "abort"},
        ["abort"],
    ],
)
def test_an_answer_that_only_speaks_of_aborts_is_an_answer(answer: Any) -> None:
    assert find_abort(json.dumps(answer).encode()) is None
    assert find_abort_in_events(sse(answer)) is None


@pytest.mark.parametrize("raw", [b"", b"data: [DONE]\n\n", b": ping\n\n", b'data: {"error": br'])
def test_other_bytes_are_no_abort(raw: bytes) -> None:
    assert find_abort_in_events(raw) is None
    assert find_abort(raw) is None


@pytest.mark.parametrize("code", [None, "500", 42, True])
def test_an_odd_code_counts_as_500(code: Any) -> None:
    found = find_abort(json.dumps({"error": {"message": "m", "code": code}}).encode())
    assert found is not None
    assert found.code == 500
