"""From a `config.json` to a geometry: who reads which architecture."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from prfaas.errors import ConfigError
from prfaas.profile.geometry.dtypes import STATE_BYTES, Dtypes
from prfaas.profile.geometry.families import FAMILIES, INDEXED, MODEL_TYPES, Family
from prfaas.profile.geometry.fields import Fields
from prfaas.profile.geometry.kv_geometry import KvGeometry

_INSTEAD = (
    "give the S_kv of a profile as a table of measured sizes, or name an architecture whose cache"
    " is laid out alike"
)

# Source: sglang 0.5.23 srt/configs/model_config.py (_STR_DTYPE_TO_TORCH_DTYPE).
_WEIGHTS = ("auto", "half", "float16", "float", "float32", "bfloat16")


def geometry_of(config: Mapping[str, Any], *, dtypes: Dtypes | None = None) -> KvGeometry:
    """Return the geometry of the model that a Hugging Face `config.json` describes.

    `dtypes` is what the engine is told; without it, what SGLang takes by itself.

    Raises:
        ConfigError: the architecture is not known, or a field is missing or senseless.
    """
    architecture, family = _family_of(config)
    fields = _fields_of(architecture, config)
    layers = tuple(family.read(fields))
    if not layers:
        raise ConfigError(f"{architecture}: no layer caches anything")
    return KvGeometry(architecture, layers, dtypes or _dtypes_of(family, fields))


def dtypes_of(config: Mapping[str, Any]) -> Dtypes:
    """Return the formats that SGLang takes for a model when it is told nothing.

    Raises:
        ConfigError: as `geometry_of`.
    """
    architecture, family = _family_of(config)
    return _dtypes_of(family, _fields_of(architecture, config))


def known_architectures() -> list[str]:
    """Return what `architectures[0]` may be."""
    return sorted(FAMILIES)


def _dtypes_of(family: Family, fields: Fields) -> Dtypes:
    _check_weights(fields)
    if not family.reads_ssm_dtype or not fields.has("mamba_ssm_dtype"):
        return Dtypes()
    ssm = fields.value("mamba_ssm_dtype")
    if not isinstance(ssm, str) or ssm not in STATE_BYTES:
        raise fields.refuse("mamba_ssm_dtype", f"one of {', '.join(STATE_BYTES)}")
    return Dtypes(ssm=ssm)


def _check_weights(fields: Fields) -> None:
    """Raise ConfigError where the format of the weights, which that of the cache follows, is one
    that SGLang does not have."""
    for name in ("torch_dtype", "dtype"):
        value = fields.value(name)
        if value is not None and (not isinstance(value, str) or value not in _WEIGHTS):
            raise fields.refuse(name, f"one of {', '.join(_WEIGHTS)}")


def _family_of(config: Mapping[str, Any]) -> tuple[str, Family]:
    architecture = _architecture_of(config)
    family = FAMILIES.get(architecture)
    if family is None:
        raise ConfigError(_why_unknown(architecture))
    return architecture, family


def _why_unknown(architecture: str) -> str:
    if architecture in INDEXED:
        return (
            f"{architecture}: the cached keys of a sparse-attention indexer are not known here;"
            f" {_INSTEAD}"
        )
    stems = {_stem(name): name for name in known_architectures()}
    close = [stems[stem] for stem in get_close_matches(_stem(architecture), stems, n=3)]
    closest = f"closest: {', '.join(close)}" if close else "nothing known is like it"
    return f"architecture {architecture!r:.80} is not known; {closest}; {_INSTEAD}"


def _stem(architecture: str) -> str:
    """Return what tells architectures apart: their names end alike."""
    return architecture[:80].partition("For")[0].lower()


def _architecture_of(config: Mapping[str, Any]) -> str:
    """Return `architectures[0]`, or what stands for the `model_type` of a config without it."""
    named = config.get("architectures")
    if named is not None:
        if not isinstance(named, list) or not named or not isinstance(named[0], str):
            raise ConfigError(f"architectures is {named!r:.60}; must be a list with a name")
        return named[0]
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ConfigError("architectures is missing, and so is model_type; must name the model")
    return MODEL_TYPES.get(model_type, model_type)


def _fields_of(architecture: str, config: Mapping[str, Any]) -> Fields:
    """Return the fields of the language model: a multimodal config nests them."""
    top = Fields(architecture, ("", config))
    if not top.has("text_config"):
        return top
    top.nested("text_config")
    return Fields(architecture, ("text_config.", config["text_config"]), ("", config))
