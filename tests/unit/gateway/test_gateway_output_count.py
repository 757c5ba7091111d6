from prfaas_gateway.output_count import OutputCount


def tokens(*chunks: bytes) -> int:
    count = OutputCount()
    for chunk in chunks:
        count.take(chunk)
    return count.tokens


def test_usage_tells_how_many_tokens_and_else_the_events_do() -> None:
    event = b'data: {"choices": [{"text": "a"}]}\n\n'
    assert tokens(event, event + event, b"data: [DONE]\n\n") == 3
    assert tokens(event, b'data: {"usage": {"completion_tokens": 7}}\n\n') == 7
    assert tokens(b'{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens":12}}') == 12
    assert tokens(b'{"error": "no"}') == 0
