"""Record what aiconfigurator-core answers: `python record.py > answers.json`.

Run where `pip install aiconfigurator-core==0.12.0` was; answers.json is what it gave.
"""

import json
import sys
from typing import Any

from aiconfigurator_core.sdk import EngineHandle, compile_engine, estimate_kv_cache

MODELS = ("Qwen/Qwen3.5-397B-A17B", "XiaomiMiMo/MiMo-V2-Flash")
SYSTEM, SGLANG, CONTEXT = "h200_sxm", "0.5.14", 8192
SPLIT = {"tp_size": 8, "moe_tp_size": 8, "moe_ep_size": 1}
MEMORY = {"memory_fraction_kind": "of_total", "memory_fraction_value": 0.85}
LENGTHS = [1 << power for power in range(7, 18)]
BATCHES = [*(1 << power for power in range(10)), 156]


def answers(model: str) -> dict[str, Any]:
    engine = EngineHandle(compile_engine(model, SYSTEM, "sglang", SGLANG, **SPLIT))
    memory = estimate_kv_cache(
        model, SYSTEM, "sglang", SGLANG, max_num_tokens=8192, max_batch_size=1, **MEMORY, **SPLIT
    )
    return {
        "split": SPLIT,
        "prefill_ms": {n: engine.predict_prefill_latency(1, n) for n in LENGTHS},
        "decode_ms": {n: engine.predict_decode_latency(n, CONTEXT) for n in BATCHES},
        "total_kv_size_bytes": memory["total_kv_size_bytes"],
    }


if __name__ == "__main__":
    recorded = {"system": SYSTEM, "sglang": SGLANG, "context_tokens": CONTEXT}
    recorded["models"] = {model: answers(model) for model in MODELS}
    json.dump(recorded, sys.stdout, indent=1)
    print()
