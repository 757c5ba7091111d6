"""Layers that cache something: softmax attention, whole or windowed, and MLA.

A layer knows its bytes for one request, and what one of `tp` ranks of SGLang keeps of it.
"""

from dataclasses import dataclass, replace

from prfaas.errors import ConfigError
from prfaas.profile.geometry.dtypes import Dtypes


class Layer:
    """One thing that a model layer caches; a layer with two mixers counts as two."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """The name that counts and tables use."""
        raise NotImplementedError

    @property
    def window_tokens(self) -> int | None:
        """How many of the latest tokens it keeps; None for all of them."""
        return None

    def bytes_per_token(self, dtypes: Dtypes) -> int:  # noqa: ARG002 - states have none
        """Bytes for each token that it keeps."""
        return 0

    def ssm_bytes(self, dtypes: Dtypes) -> int:  # noqa: ARG002 - attention has none
        """Bytes per request of its recurrent state, whatever the length."""
        return 0

    def conv_bytes(self, dtypes: Dtypes) -> int:  # noqa: ARG002 - attention has none
        """Bytes per request of its convolution state, whatever the length."""
        return 0

    def on_rank(self, tp: int) -> "Layer":
        """Return what one of `tp` ranks keeps.

        Raises:
            ConfigError: SGLang does not split it so.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Attention(Layer):
    """Softmax attention: a key and a value for each KV head and token.

    >>> Attention(heads=32, kv_heads=8, key_dim=128, value_dim=128).bytes_per_token(Dtypes())
    4096
    """

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def kind(self) -> str:
        """MHA when every head has keys of its own, else GQA (MQA included)."""
        return "MHA" if self.kv_heads == self.heads else "GQA"

    def bytes_per_token(self, dtypes: Dtypes) -> int:
        """Bytes for each token that it keeps."""
        return self.kv_heads * (self.key_dim + self.value_dim) * dtypes.kv_bytes

    def on_rank(self, tp: int) -> "Attention":
        """Split the heads; with fewer KV heads than ranks every rank keeps one.

        Source: sglang 0.5.23 srt/layers/linear.py (QKVParallelLinear).
        """
        if tp >= self.kv_heads:
            split(tp, self.kv_heads, "ranks over KV heads")
        else:
            split(self.kv_heads, tp, "KV heads")
        heads = split(self.heads, tp, "attention heads")
        return replace(self, heads=heads, kv_heads=max(1, self.kv_heads // tp))


@dataclass(frozen=True, slots=True)
class Window(Layer):
    """Sliding-window attention: as attention, for the latest `tokens` tokens."""

    attention: Attention
    tokens: int

    @property
    def kind(self) -> str:
        """The name that counts and tables use."""
        return "SWA"

    @property
    def window_tokens(self) -> int:
        """How many of the latest tokens it keeps."""
        return self.tokens

    def bytes_per_token(self, dtypes: Dtypes) -> int:
        """Bytes for each token that it keeps."""
        return self.attention.bytes_per_token(dtypes)

    def on_rank(self, tp: int) -> "Window":
        """Split as attention is."""
        return replace(self, attention=self.attention.on_rank(tp))


@dataclass(frozen=True, slots=True)
class Latent(Layer):
    """Multi-head latent attention (MLA): one row for all heads, keys and values in one.

    The rope columns are stored by NoPE models as well.

    >>> Latent(lora_rank=512, rope_dim=64).bytes_per_token(Dtypes())
    1152
    """

    lora_rank: int
    rope_dim: int

    @property
    def kind(self) -> str:
        """The name that counts and tables use."""
        return "MLA"

    def bytes_per_token(self, dtypes: Dtypes) -> int:
        """Bytes for each token."""
        return (self.lora_rank + self.rope_dim) * dtypes.kv_bytes

    def on_rank(self, tp: int) -> "Latent":  # noqa: ARG002 - the latent is not split
        """Keep the whole row: every rank has one."""
        return self


def split(count: int, tp: int, what: str) -> int:
    """Return the share of one rank.

    Raises:
        ConfigError: the ranks would get different shares, which SGLang refuses.
    """
    if count % tp:
        raise ConfigError(f"tensor parallelism: {count} {what} cannot be split by {tp}")
    return count // tp
