"""Stand-in for torchvision, which SGLang imports even for text: imports succeed, images do not work.

Any name and any submodule exists; a class asked for here raises NotImplementedError when it is made or called.
"""

import enum
import importlib
import importlib.abc
import importlib.machinery
import sys
import types

__prfaas_standin__ = True
__version__ = "0.0.0+prfaas"


class InterpolationMode(enum.Enum):
    """The members that SGLang and transformers name at import."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_MODULES = ("functional", "io", "ops", "transforms", "utils", "v2")


def _lookup(module):
    """Return a module's `__getattr__`: one class per name (they are subclassed and annotated with)."""

    def missing(name):
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        if name in _MODULES:
            return importlib.import_module(f"{module.__name__}.{name}")

        def refuse(*_args, **_options):
            raise NotImplementedError(f"{module.__name__}.{name}: torchvision is not installed")

        found = InterpolationMode
        if name != "InterpolationMode":
            found = type(name, (), {"__new__": refuse})
        setattr(module, name, found)
        return found

    return missing


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes any `torchvision.<anything>` importable."""

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
