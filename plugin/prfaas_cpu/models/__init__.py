"""Four tiny models with random weights, one per kind of state that PrfaaS moves.

`python -m prfaas_cpu.models make --out DIR` writes them; importing this package costs nothing.
"""

import sys
from pathlib import Path

TINY_MODELS = ("qwen3-tiny", "qwen3-next-tiny", "falcon-h1-tiny", "mellum-tiny")
"""Full attention; Gated DeltaNet 3:1, MoE; Mamba-2 beside attention; sliding window 3:1, MoE."""


def default_models_dir() -> Path:
    """Return where `make` puts the models: inside the environment that runs them."""
    return Path(sys.prefix) / "share" / "prfaas" / "models"
