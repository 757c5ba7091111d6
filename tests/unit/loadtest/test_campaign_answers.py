"""Bodies of requests, and what is read out of streams."""

import json

import numpy as np
import pytest

from prfaas_loadtest.campaigns.asking import AnswerReader, Api, body_of, refusal

IDS = np.array([5, 6, 7])


def line(**event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n"


def read(api: Api, *lines: bytes) -> AnswerReader:
    reader = AnswerReader(api)
    for number, one in enumerate(lines):
        reader.line(one, float(number))
    return reader


def test_bodies_ask_for_exactly_so_many_tokens_as_a_stream() -> None:
    plain = json.loads(body_of(Api.COMPLETIONS, IDS, 9, "m"))
    assert (plain["prompt"], plain["max_tokens"], plain["model"]) == ([5, 6, 7], 9, "m")
    assert plain["stream"] is plain["ignore_eos"] is True
    native = json.loads(body_of(Api.GENERATE, IDS, 9, ""))
    assert native["input_ids"] == [5, 6, 7]
    assert native["sampling_params"]["max_new_tokens"] == 9
    chat = json.loads(body_of(Api.CHAT, "why", 9, ""))
    assert chat["messages"] == [{"role": "user", "content": "why"}]
    assert "model" not in chat
    with pytest.raises(ValueError, match="no token ids"):
        body_of(Api.CHAT, IDS, 9, "")


def test_the_first_token_is_the_first_text_not_the_first_event() -> None:
    reader = read(
        Api.CHAT,
        line(choices=[{"delta": {"role": "assistant"}}]),
        b"\n",
        line(choices=[{"delta": {"content": "a"}}]),
        line(choices=[{"delta": {"content": "b"}}]),
        line(choices=[], usage={"completion_tokens": 5}),
        b"data: [DONE]\n",
    )
    assert reader.at_s == [2.0, 3.0]
    assert (reader.output_tokens, reader.done, reader.error) == (5, True, "")


def test_generate_counts_what_the_server_says() -> None:
    events = [line(text="x", meta_info={"completion_tokens": n}) for n in (1, 3, 3)]
    reader = read(Api.GENERATE, *events)
    assert reader.at_s == [0.0, 1.0]
    assert reader.output_tokens == 3
    assert not reader.done


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (line(error={"code": "lost", "message": "gone"}), "lost gone"),
        (b"data: {oops\n", "an event is not JSON"),
    ],
)
def test_an_error_in_the_stream_is_kept(bad: bytes, error: str) -> None:
    reader = read(Api.COMPLETIONS, line(choices=[{"text": "a"}]), bad)
    assert error in reader.error


def test_a_refusal_is_a_line() -> None:
    assert refusal(b'{"error": {"code": "busy", "message": "try\\nagain"}}') == "busy try again"
    assert refusal(b"<html>\nbad gateway") == "<html> bad gateway"
