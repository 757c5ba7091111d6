"""Start an SGLang server on a machine without a GPU: `python -m prfaas_cpu.launch <sglang args>`.

Puts the stand-ins for `sgl_kernel` and `torchvision` at the END of the module path, where a real
package always wins, imports SGLang once, and lets its scheduler and detokenizer be forked from that
one process instead of importing everything three times.
"""

import ctypes
import importlib
import os
import sys
from pathlib import Path

STANDINS = Path(__file__).parent / "standins"

#: Environment a CPU worker needs before SGLang is imported. What is already set wins.
CPU_ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

_PR_SET_NAME = 15

#: What SGLang's three processes import, together: the HTTP server, the scheduler, the detokenizer.
PRELOADED = (
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.models.registry",
    "sglang.launch_server",
)


def preload() -> None:
    """Import SGLang, run its plugins and make its child processes forks of this one.

    Call once, on the main thread, before any thread exists.
    """
    for name, value in CPU_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if str(STANDINS) not in sys.path:
        sys.path.append(str(STANDINS))
    import torch

    torch.set_num_threads(1)
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(
        "sglang.srt.entrypoints.engine._set_envs_and_config", _fork_children, HookType.AFTER
    )
    for module in PRELOADED:
        importlib.import_module(module)
    from sglang.srt.plugins import load_plugins

    load_plugins()
    _show_names()


def _fork_children(result: object, *_args: object, **_kwargs: object) -> object:
    """Undo SGLang's choice of `spawn`: without CUDA a fork is safe and skips all imports."""
    import multiprocessing

    multiprocessing.set_start_method("fork", force=True)
    return result


def _show_names() -> None:
    """Let `ps` and `top` show which of SGLang's processes is which, also in forks.

    `setproctitle` finds its place in memory by the environment that the process started with, and
    does nothing where that was replaced.
    """
    import setproctitle

    set_title = setproctitle.setproctitle
    libc = ctypes.CDLL(None)

    def set_both(title: str) -> None:
        set_title(title)
        libc.prctl(_PR_SET_NAME, title.encode()[:15], 0, 0, 0)

    setproctitle.setproctitle = set_both


def serve(args: list[str]) -> None:
    """Run one SGLang server with command-line `args` until it ends; `preload()` came before."""
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        run_server(prepare_server_args(args))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    preload()
    serve(sys.argv[1:])
