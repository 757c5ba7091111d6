"""State bytes by SGLang's own configuration classes: SIZES (as in 1,8) and config files.

Prints {file: {tp: bytes per request of all ranks together}}. Nothing of ours is imported here.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sglang.srt import configs

CLASSES = {
    "bailing_hybrid": configs.BailingHybridConfig,
    "granitemoehybrid": configs.GraniteMoeHybridConfig,
    "kimi_linear": configs.KimiLinearConfig,
    "lfm2": configs.Lfm2Config,
    "qwen3_5_moe": configs.Qwen3_5MoeConfig,
    "qwen3_next": configs.Qwen3NextConfig,
}
"""Of the models with states, by `model_type`."""


def set_tp(tp: int) -> None:
    """Make SGLang's configuration classes believe that they run on `tp` ranks."""
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.srt.configs.") and hasattr(module, "get_parallel"):
            module.get_parallel = lambda: SimpleNamespace(attn_tp_size=tp)
        if name.startswith("sglang.srt.configs.") and hasattr(module, "linear_attn_tp_size"):
            module.linear_attn_tp_size = lambda: tp


def state_bytes(raw: dict[str, Any], tp: int) -> int:
    """Return what SGLang's MambaPool takes for one request, on all ranks together."""
    set_tp(tp)
    config = CLASSES[raw["model_type"]](**raw).get_text_config()
    return tp * int(config.mamba2_cache_params.mamba_cache_per_req)


def main(sizes: list[int], files: list[Path]) -> dict[str, dict[int, int]]:
    """Return the bytes of every file whose model has states."""
    raws = {file.stem: json.loads(file.read_text()) for file in files}
    return {
        name: {tp: state_bytes(raw, tp) for tp in sizes}
        for name, raw in raws.items()
        if raw["model_type"] in CLASSES
    }


if __name__ == "__main__":
    tp_sizes = [int(size) for size in sys.argv[1].split(",")]
    json.dump(main(tp_sizes, [Path(name) for name in sys.argv[2:]]), sys.stdout)
