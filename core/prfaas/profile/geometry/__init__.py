"""KV-cache geometry: from a model's `config.json` to bytes per token and bytes per request."""

from prfaas.profile.geometry.dtypes import Dtypes
from prfaas.profile.geometry.kv_geometry import KvGeometry
from prfaas.profile.geometry.layers import Layer
from prfaas.profile.geometry.model_config import (
    dtypes_of,
    geometry_of,
    known_architectures,
)

__all__ = [
    "Dtypes",
    "KvGeometry",
    "Layer",
    "dtypes_of",
    "geometry_of",
    "known_architectures",
]
