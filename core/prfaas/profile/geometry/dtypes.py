"""The number formats of the three kinds of cached data."""

from dataclasses import dataclass

from prfaas.errors import ConfigError

STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes per element of the formats that SSM and convolution states may have."""
KV_BYTES = STATE_BYTES | {"fp8_e4m3": 1, "fp8_e5m2": 1}
"""The same for keys, values and latents; block-scaled formats carry scales, and are not known."""


@dataclass(frozen=True, slots=True)
class Dtypes:
    """Format names as SGLang's options spell them; the defaults are SGLang's.

    `kv` is `--kv-cache-dtype` (auto is two bytes wide for every model), `ssm` is
    `--mamba-ssm-dtype`, `conv` is `SGLANG_MAMBA_CONV_DTYPE`.

    Raises:
        ConfigError: a name is not known.
    Source: sglang 0.5.23 srt/configs/mamba_utils.py (mamba2_state_dtype).
    """

    kv: str = "bfloat16"
    ssm: str = "float32"
    conv: str = "bfloat16"

    def __post_init__(self) -> None:
        _check("kv", self.kv, KV_BYTES)
        _check("ssm", self.ssm, STATE_BYTES)
        _check("conv", self.conv, STATE_BYTES)

    @property
    def kv_bytes(self) -> int:
        """Bytes per element of keys, values and latents."""
        return KV_BYTES[self.kv]

    @property
    def ssm_bytes(self) -> int:
        """Bytes per element of a recurrent state."""
        return STATE_BYTES[self.ssm]

    @property
    def conv_bytes(self) -> int:
        """Bytes per element of a convolution state."""
        return STATE_BYTES[self.conv]


def _check(kind: str, name: object, known: dict[str, int]) -> None:
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"{kind} dtype {name!r:.60}: allowed: {', '.join(known)}")
