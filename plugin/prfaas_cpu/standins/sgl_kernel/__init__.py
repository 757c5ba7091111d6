"""Stand-in for the CPU build of sgl-kernel, which no registry has: imports succeed, kernels do not exist.

Every name that is asked for exists, as a placeholder that raises NotImplementedError with the kernel's name when it
is called. The kernels that the tiny models need are put in place afterwards (`prfaas_cpu.kernels.install`).
`convert_weight_packed` is not registered: its absence tells SGLang that there is no AMX backend.
"""

import importlib.abc
import importlib.machinery
import sys
import types

import torch

__prfaas_standin__ = True
__version__ = "0.0.0+prfaas"

# Operators that SGLang looks up while it is imported on a CPU.
_OPERATORS = (
    "fused_gdn_gating_cpu",
    "fused_input_proj_cpu",
    "fused_moe_router_cpu",
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
    "fused_sigmoid_gating_delta_rule_update_cpu",
    "fused_sigmoid_mul_cpu",
)


class MissingKernel:
    """A kernel that this machine does not have."""

    def __init__(self, name):
        self.__name__ = name.rpartition(".")[2]
        self.__qualname__ = name

    def __call__(self, *_args, **_options):
        raise NotImplementedError(
            f"{self.__qualname__} has no CPU build here and no replacement in the CPU kit"
        )

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MissingKernel(f"{self.__qualname__}.{name}")

    def __repr__(self):
        return f"<missing kernel {self.__qualname__}>"


def _lookup(module):
    """Return a module's `__getattr__`: one placeholder per name, remembered in the module."""

    def missing(name):
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        kernel = MissingKernel(f"{module.__name__}.{name}")
        setattr(module, name, kernel)
        return kernel

    return missing


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes any `sgl_kernel.<anything>` importable."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith(__name__ + "."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        module.__getattr__ = _lookup(module)


__getattr__ = _lookup(sys.modules[__name__])
sys.meta_path.append(_Submodules())
for _name in _OPERATORS:
    setattr(torch.ops.sgl_kernel, _name, MissingKernel(f"torch.ops.sgl_kernel.{_name}"))
