"""Fields that engines take from their own parts, or that one request can end them with.

SGLang 0.5.23 does not check these: what is wrong in them is an error in its scheduler, which ends
the engine, of the other region too. Found by sending every field with senseless values.
"""

from collections.abc import Mapping
from typing import Any

from prfaas_gateway.errors import RequestError

SET_BY_GATEWAY = (
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "bootstrap_pair_key",
    "decode_tp_size",
    "disagg_prefill_dp_rank",
    "http_worker_ipc",
)
NOT_SERVED = (
    "image_data",
    "video_data",
    "audio_data",
    "input_embeds",
    "positional_embed_overrides",
    "mm_hashes",
    "mm_content_hashes",
    "lora_id",
    "session_params",
)
"""Other prompts than text and tokens, and what only parts of an engine tell each other."""
_ONE_EACH = (
    "return_hidden_states",
    "return_sampling_mask",
    "return_logprob",
    "logprob_start_len",
    "lora_path",
    "custom_logit_processor",
)
"""What SGLang's `/generate` takes a list of, for several prompts."""
_MAX_COUNT = (1 << 31) - 1
_MAX_BIAS = 1e6


def check_fields(body: Mapping[str, Any]) -> None:
    """Refuse fields that are not the client's, or whose value no engine can serve.

    Raises:
        RequestError: naming the field.
    """
    for name in SET_BY_GATEWAY:
        if body.get(name) is not None:
            raise RequestError(f"{name} is set by the gateway", param=name)
    for name in NOT_SERVED:
        if body.get(name) is not None:
            raise RequestError(f"{name} is not supported", param=name)
    for name in _ONE_EACH:
        if isinstance(body.get(name), list):
            raise RequestError(f"{name}: a list; there is one prompt per request", param=name)
    form = body.get("response_format")
    if form is not None and not isinstance(form, dict):
        raise RequestError("response_format: expected an object", param="response_format")
    sampling = body.get("sampling_params")
    _check_sampling(sampling if isinstance(sampling, dict) else body)


def _check_sampling(holder: Mapping[str, Any]) -> None:
    top_k = holder.get("top_k")
    if isinstance(top_k, int | float) and not -1 <= top_k <= _MAX_COUNT:
        raise RequestError(f"top_k = {top_k!r:.40}: -1 to {_MAX_COUNT}", param="top_k")
    bias = holder.get("logit_bias")
    for value in bias.values() if isinstance(bias, dict) else ():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not -_MAX_BIAS <= value <= _MAX_BIAS:
            text = f"logit_bias: {value!r:.40}: expected numbers of {-_MAX_BIAS:g} to {_MAX_BIAS:g}"
            raise RequestError(text, param="logit_bias")
