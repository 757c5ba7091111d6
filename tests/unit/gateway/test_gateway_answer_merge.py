import json

import pytest

from prfaas_gateway.answer_merge import EventMerger, merge_answers


def answer(text: str, tokens: int) -> bytes:
    usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
    return json.dumps(
        {"id": text, "choices": [{"index": 0, "text": text}], "usage": usage}
    ).encode()


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def test_whole_answers_become_one() -> None:
    merged = json.loads(merge_answers([answer("a", 2), answer("b", 3)]))
    assert merged["id"] == "a"
    assert [(c["index"], c["text"]) for c in merged["choices"]] == [(0, "a"), (1, "b")]
    assert merged["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"choices": 5}', b'{"text": ""}'])
def test_what_is_no_answer_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        merge_answers([answer("a", 1), body])


def test_streams_become_one_with_one_end() -> None:
    merger = EventMerger(2)
    sent = b""
    streams = [
        b"".join(
            [
                event({"id": name, "choices": [{"index": 0, "text": name}]}),
                event(
                    {
                        "id": name,
                        "choices": [],
                        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
                    }
                ),
                b"data: [DONE]\n\n",
            ]
        )
        for name in ("x", "y")
    ]
    # In pieces of any size, in turns.
    for place in range(0, max(map(len, streams)), 7):
        for index, stream in enumerate(streams):
            sent += merger.take(index, stream[place : place + 7])
    sent += merger.end()
    events = sent.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    first, second, usage = (json.loads(e.removeprefix("data: ")) for e in events[:-2])
    assert [first["choices"][0]["index"], second["choices"][0]["index"]] == [0, 1]
    assert first["id"] == second["id"] == usage["id"]
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_what_is_no_event_passes_unchanged() -> None:
    merger = EventMerger(1)
    for odd in (b": note\n\n", b"data: {\n\n", b"data: 5\n\n", b'data: {"error": {}}\n\n'):
        assert merger.take(0, odd) == odd
    assert merger.end() == b"data: [DONE]\n\n"
