"""SGLang's arguments for a host's prefix pool.

Source: sglang 0.5.23 `srt/arg_groups/hicache_hook.py`, `srt/mem_cache/storage/backend_factory.py`.
"""

import json
from pathlib import Path

from prfaas.pool_section import PoolSection

#: Page by page, so that a page of all layers is one run of bytes in the engine's host memory. The
#: only layout that a CPU build has for states.
_MEMORY_LAYOUT = "page_first_direct"


def pool_arguments(section: PoolSection, *, model_id: str) -> list[str]:
    """Return what makes an engine keep its prefixes in the pool."""
    storage = {
        "backend_name": "prfaas",
        "module_path": "prfaas_plugin.pool_storage",
        "class_name": "PrefixPoolStorage",
        "interface_v1": 1,
        "hicache_storage_pass_prefix_keys": True,
        "prefetch_threshold": section.prefetch_tokens,
        "socket": str(Path(section.socket).absolute()),
        "model": model_id,
    }
    arguments = ["--enable-hierarchical-cache", "--hicache-ratio", f"{section.host_ratio:g}"]
    arguments += ["--hicache-write-policy", "write_through"]
    arguments += ["--hicache-io-backend", "direct", "--hicache-mem-layout", _MEMORY_LAYOUT]
    arguments += ["--hicache-storage-prefetch-policy", "wait_complete"]
    arguments += ["--hicache-storage-backend", "dynamic"]
    arguments += ["--hicache-storage-backend-extra-config", json.dumps(storage, sort_keys=True)]
    return arguments
