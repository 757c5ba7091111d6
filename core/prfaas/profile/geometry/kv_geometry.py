"""What one request's cache weighs, by length."""

from collections import Counter
from dataclasses import dataclass

from prfaas.errors import ConfigError
from prfaas.profile.geometry.dtypes import Dtypes
from prfaas.profile.geometry.layers import Layer

MAX_TP = 1 << 12
WINDOW_POOLS = frozenset(
    {"GptOssForCausalLM", "MellumForCausalLM", "MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"}
)
"""Of the known architectures with windows, those whose window layers SGLang keeps in a pool of
their own; of the others it keeps all tokens.
Source: sglang 0.5.23 srt/configs/model_config.py (is_hybrid_swa_model)."""


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """A model's cached layers in order; all sizes are bytes of one logical copy unless said.

    Draft (MTP) layers are not counted.
    """

    architecture: str
    layers: tuple[Layer, ...]
    dtypes: Dtypes

    def bytes_per_token(self) -> int:
        """Return the bytes of each token in the layers that keep all tokens."""
        return sum(
            layer.bytes_per_token(self.dtypes)
            for layer in self.layers
            if layer.window_tokens is None
        )

    def ssm_bytes(self) -> int:
        """Return the bytes of the recurrent states of one request."""
        return sum(layer.ssm_bytes(self.dtypes) for layer in self.layers)

    def conv_bytes(self) -> int:
        """Return the bytes of the convolution states of one request."""
        return sum(layer.conv_bytes(self.dtypes) for layer in self.layers)

    def state_bytes(self) -> int:
        """Return the bytes of all states of one request, whatever its length."""
        return self.ssm_bytes() + self.conv_bytes()

    def window_bytes(self, tokens: int) -> int:
        """Return the bytes of the sliding-window layers after `tokens` tokens."""
        _check_tokens(tokens)
        return sum(
            layer.bytes_per_token(self.dtypes) * min(tokens, layer.window_tokens)
            for layer in self.layers
            if layer.window_tokens is not None
        )

    def window_bytes_per_token(self) -> int:
        """Return the bytes of each token that the sliding-window layers keep."""
        return sum(
            layer.bytes_per_token(self.dtypes)
            for layer in self.layers
            if layer.window_tokens is not None
        )

    def full_window_bytes(self) -> int:
        """Return the bytes of the sliding-window layers of a prompt that fills every window."""
        return self.window_bytes(max(layer.window_tokens or 0 for layer in self.layers))

    def fixed_bytes(self) -> int:
        """Return what a long request weighs beside its tokens: states and full windows."""
        return self.state_bytes() + self.full_window_bytes()

    def kv_bytes(self, tokens: int) -> int:
        """Return S_kv: all that a prefill of `tokens` tokens leaves behind.

        Source: PrfaaS §2 (S_kv).
        """
        _check_tokens(tokens)
        growing = self.bytes_per_token() * tokens
        return growing + self.state_bytes() + self.window_bytes(tokens)

    def counts(self) -> dict[str, int]:
        """Return the number of layers of each kind, the most frequent first."""
        return dict(Counter(layer.kind for layer in self.layers).most_common())

    def physical_bytes(self, tokens: int, *, tp: int) -> int:
        """Return the bytes that all `tp` ranks of one SGLang engine hold together.

        More than `kv_bytes` where ranks hold the same thing (a KV head, a Mamba group, an MLA
        latent) and where SGLang keeps all tokens of a window layer. At page size 1; without
        attention data parallelism.

        Raises:
            ConfigError: SGLang does not split the model so.
        """
        rank = self.on_rank(tp)
        held = rank.kv_bytes(tokens)
        if self.architecture not in WINDOW_POOLS:
            held += rank.window_bytes_per_token() * tokens - rank.window_bytes(tokens)
        return tp * held

    def on_rank(self, tp: int) -> "KvGeometry":
        """Return what one of `tp` ranks of SGLang keeps.

        Raises:
            ConfigError: SGLang does not split the model so.
        """
        if not 1 <= tp <= MAX_TP:
            raise ConfigError(f"tensor parallelism: {tp}; allowed is 1 to {MAX_TP} ranks")
        layers = tuple(layer.on_rank(tp) for layer in self.layers)
        return KvGeometry(self.architecture, layers, self.dtypes)


def _check_tokens(tokens: int) -> None:
    if tokens < 0:
        raise ValueError(f"{tokens} tokens")
