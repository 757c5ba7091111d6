"""What an engine does not check itself and dies of: token ids and counts outside the model's range.

SGLang 0.5.23 trusts the token ids of a pretokenized prompt, and the number of log-probabilities; a
wrong one ends its scheduler with an index error, and a fallback would carry it to the next engine.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from prfaas_gateway.errors import RequestError

#: Rows of SGLang's metadata buffers hold so many; source: srt/disaggregation/utils.py.
MAX_TOP_LOGPROBS = 128
_TOP_LOGPROBS = ("logprobs", "top_logprobs", "top_logprobs_num")
_MAX_TOKEN_ID = (1 << 31) - 1


def check_limits(body: dict[str, Any]) -> None:
    """Refuse counts and patterns that no engine can serve.

    Raises:
        RequestError: naming the field.
    """
    for name in _TOP_LOGPROBS:
        for count in _flat(body.get(name)):
            if type(count) is int and not 0 <= count <= MAX_TOP_LOGPROBS:
                raise RequestError(f"{name} = {count}: 0 to {MAX_TOP_LOGPROBS}", param=name)
    sampling = body.get("sampling_params")
    holder = sampling if isinstance(sampling, dict) else body
    for pattern in _flat(holder.get("stop_regex")):
        _check_pattern(pattern)


def named_tokens(body: dict[str, Any]) -> tuple[int, ...]:
    """Return the token ids that a request names beside its prompt.

    Raises:
        RequestError: what stands for a token id is none.
    """
    sampling = body.get("sampling_params")
    holder = sampling if isinstance(sampling, dict) else body
    bias = holder.get("logit_bias")
    tokens: list[int] = []
    for name, values in (
        ("token_ids_logprob", body.get("token_ids_logprob")),
        ("logit_bias", list(bias) if isinstance(bias, dict) else None),
        ("stop_token_ids", holder.get("stop_token_ids")),
    ):
        tokens += [_token_id(name, value) for value in _flat(values)]
    return tuple(tokens)


def check_vocabulary(tokens: Sequence[int], vocabulary: int, *, param: str | None = None) -> None:
    """Refuse token ids that the model does not have.

    Raises:
        RequestError: with the range.
    """
    if tokens and not 0 <= min(tokens) <= max(tokens) < vocabulary:
        wrong = min(tokens) if min(tokens) < 0 else max(tokens)
        raise RequestError(
            f"token id {wrong}: the model's vocabulary is 0 to {vocabulary - 1}", param=param
        )


def _flat(value: Any) -> Iterable[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        return (value,)
    return [item for part in value for item in _flat(part)]


def _token_id(name: str, value: Any) -> int:
    try:
        token = int(value)
    except (TypeError, ValueError, OverflowError):
        token = -1
    if isinstance(value, float | bool) or not 0 <= token <= _MAX_TOKEN_ID:
        raise RequestError(f"{name}: {value!r:.40} is not a token id", param=name)
    return token


def _check_pattern(pattern: Any) -> None:
    if not isinstance(pattern, str):
        raise RequestError("stop_regex: expected text", param="stop_regex")
    try:
        re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise RequestError(f"stop_regex: {error}", param="stop_regex") from None
