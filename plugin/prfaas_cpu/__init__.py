"""The CPU kit: what stock SGLang 0.5.23 lacks on a machine without a GPU.

`kernels` holds torch replacements for SGLang's missing CPU kernels, `standins` the import-only
packages `sgl_kernel` and `torchvision`, `models` four tiny models with random weights.
"""

import os


def register() -> None:
    """Install what CPU workers need; SGLang calls this in every process that it starts.

    Does nothing elsewhere, and replaces kernels only where `sgl_kernel` is our stand-in.
    """
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    from prfaas_cpu import idle
    from prfaas_cpu.kernels import install

    idle.install()
    if install.standin_loaded():
        install.install()
