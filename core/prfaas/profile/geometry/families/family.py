"""What the module knows of an architecture."""

from collections.abc import Callable
from dataclasses import dataclass

from prfaas.profile.geometry.fields import Fields
from prfaas.profile.geometry.layers import Layer

Reader = Callable[[Fields], list[Layer]]


@dataclass(frozen=True, slots=True)
class Family:
    """`read` makes the layers; `reads_ssm_dtype`: SGLang heeds the config's `mamba_ssm_dtype`."""

    read: Reader
    reads_ssm_dtype: bool = False
