"""What a twin tells of itself, under SGLang's names.

Source: sglang 0.5.23 srt/entrypoints/http_server.py (`/model_info`, `/server_info`).
"""

from typing import TYPE_CHECKING, Any

from prfaas_twin.load import VERSION
from prfaas_twin.model import PAGE_TOKENS

if TYPE_CHECKING:
    from prfaas_twin.instance import TwinInstance


def model_info(twin: "TwinInstance") -> dict[str, Any]:
    """Return what its model is."""
    return {
        "model_path": twin.engine.model_path,
        "served_model_name": twin.model.model_id,
        "tokenizer_path": twin.engine.model_path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "twin",
        "reasoning_parser": None,
        "tool_call_parser": None,
        "disaggregation_mode": str(twin.role_name),
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "twin",
        "architectures": [twin.model.profile.name],
    }


def server_info(twin: "TwinInstance") -> dict[str, Any]:
    """Return its settings."""
    section, node = twin.model.section, twin.model.config.node
    tokens = section.context_tokens
    return {
        "model_path": twin.engine.model_path,
        "tokenizer_path": twin.engine.model_path,
        "served_model_name": twin.model.model_id,
        "host": twin.host,
        "port": node.port,
        "device": "twin",
        "page_size": PAGE_TOKENS,
        "context_length": tokens,
        "max_total_tokens": tokens,
        "max_total_num_tokens": tokens,
        "chunked_prefill_size": section.chunk_tokens,
        "max_prefill_tokens": section.batch_tokens,
        "max_running_requests": twin.model.max_running_requests or None,
        "disaggregation_mode": str(twin.role_name),
        "disaggregation_transfer_backend": "prfaas",
        "disaggregation_bootstrap_port": twin.engine.bootstrap_port or None,
        "enable_pd_role_switch": twin.engine.role_switch,
        "version": VERSION,
        "twin": {
            "profile": twin.model.profile.name,
            "scale": section.scale,
            "dilation": section.dilation,
            "layers": section.layers,
            "slowness": twin.slowness,
        },
    }
