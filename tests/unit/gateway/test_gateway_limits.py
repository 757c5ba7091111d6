import json
from typing import Any

import pytest

from prfaas_gateway.errors import RequestError
from prfaas_gateway.inference import Api, parse_inference
from prfaas_gateway.limits import check_vocabulary


def parse(api: Api, **fields: Any) -> Any:
    return parse_inference(api, json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("api", "fields", "says"),
    [
        (Api.COMPLETIONS, {"prompt": "x", "logprobs": 129}, "logprobs = 129: 0 to 128"),
        (Api.CHAT, {"messages": [{"role": "user"}], "top_logprobs": -1}, "top_logprobs = -1"),
        (Api.GENERATE, {"text": "x", "top_logprobs_num": [7, 99999]}, "99999"),
        (Api.GENERATE, {"text": "x", "sampling_params": {"stop_regex": "((("}}, "stop_regex"),
        (Api.GENERATE, {"text": "x", "sampling_params": {"stop_regex": ["a", 7]}}, "stop_regex"),
        (Api.COMPLETIONS, {"prompt": "x", "logit_bias": {"one": 1}}, "logit_bias: 'one'"),
        (Api.GENERATE, {"text": "x", "token_ids_logprob": [[1, -2]]}, "token_ids_logprob: -2"),
        (Api.COMPLETIONS, {"prompt": "x", "stop_regex": "a{99999999999999999999}"}, "stop_regex"),
        (Api.COMPLETIONS, {"prompt": "x", "stop_token_ids": [float("inf")]}, "JSON"),
        (Api.COMPLETIONS, {"prompt": "x", "temperature": float("nan")}, "NaN is no number"),
        (Api.COMPLETIONS, {"prompt": "x", "top_k": 1 << 40}, "top_k = 1099511627776: -1 to"),
        (Api.GENERATE, {"text": "x", "sampling_params": {"top_k": 1 << 31}}, "top_k = 2147483648"),
        (Api.COMPLETIONS, {"prompt": "x", "logit_bias": {"5": 1e39}}, "logit_bias: 1e+39"),
        (Api.GENERATE, {"text": "x", "sampling_params": {"logit_bias": {"5": "x"}}}, "'x'"),
        (Api.GENERATE, {"text": "x", "return_hidden_states": []}, "return_hidden_states: a list"),
        (Api.GENERATE, {"text": "x", "lora_id": [None]}, "lora_id is not supported"),
        (Api.GENERATE, {"text": "x", "positional_embed_overrides": 0}, "positional_embed_over"),
        (Api.GENERATE, {"text": "x", "image_data": "/etc/passwd"}, "image_data is not supported"),
        (Api.GENERATE, {"text": "x", "disagg_prefill_dp_rank": 7}, "set by the gateway"),
        (Api.CHAT, {"messages": [{"role": "user"}], "response_format": 7}, "response_format"),
        (Api.CHAT, {"messages": [{"role": "user"}], "input_ids": [1 << 30]}, "input_ids is not"),
    ],
)
def test_what_an_engine_would_die_of_is_refused(api: Api, fields: Any, says: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse(api, **fields)
    assert says in str(caught.value)


def test_a_number_that_is_too_large_for_a_float_is_no_token() -> None:
    with pytest.raises(RequestError, match="stop_token_ids: inf is not a token id"):
        parse_inference(Api.COMPLETIONS, b'{"prompt": "x", "stop_token_ids": [1e999]}')


def test_what_engines_can_serve_is_left_alone() -> None:
    parsed = parse(
        Api.COMPLETIONS, prompt="x", logprobs=128, max_tokens=None, logit_bias={"5": 1}, top_k=-1
    )
    assert parsed.named_tokens == (5,)
    assert json.loads(parsed.body) == {
        "prompt": "x",
        "logprobs": 128,
        "logit_bias": {"5": 1},
        "top_k": -1,
    }
    chat = parse(Api.CHAT, messages=[{"role": "user"}], logprobs=True, top_logprobs=5)
    assert json.loads(chat.body)["logprobs"] is True


@pytest.mark.parametrize("tokens", [[512], [5, 600, 7], [-1]])
def test_a_token_outside_the_vocabulary_is_refused_with_the_range(tokens: list[int]) -> None:
    check_vocabulary([0, 511], 512)
    check_vocabulary([], 512)
    with pytest.raises(RequestError, match="vocabulary is 0 to 511"):
        check_vocabulary(tokens, 512)
