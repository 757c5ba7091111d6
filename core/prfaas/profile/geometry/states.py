"""Layers with a state of fixed size: linear attention, Mamba and short convolutions.

Source: sglang 0.5.23 srt/configs/mamba_utils.py (Mamba2StateShape, KimiLinearStateShape).
"""

from dataclasses import dataclass, replace

from prfaas.profile.geometry.dtypes import Dtypes
from prfaas.profile.geometry.layers import Layer, split


class Recurrent(Layer):
    """A layer whose cache does not grow with the prompt."""

    __slots__ = ()

    @property
    def ssm_elements(self) -> int:
        """Numbers in the recurrent state of one request."""
        raise NotImplementedError

    @property
    def conv_elements(self) -> int:
        """Numbers in the convolution state of one request: the last `kernel - 1` inputs."""
        raise NotImplementedError

    def ssm_bytes(self, dtypes: Dtypes) -> int:
        """Bytes per request of the recurrent state."""
        return self.ssm_elements * dtypes.ssm_bytes

    def conv_bytes(self, dtypes: Dtypes) -> int:
        """Bytes per request of the convolution state."""
        return self.conv_elements * dtypes.conv_bytes


@dataclass(frozen=True, slots=True)
class Gdn(Recurrent):
    """Gated DeltaNet: state (value heads, value dim, key dim); convolution over q, k and v.

    >>> layer = Gdn(key_heads=16, value_heads=32, key_dim=128, value_dim=128, kernel=4)
    >>> layer.ssm_bytes(Dtypes()), layer.conv_bytes(Dtypes())
    (2097152, 49152)
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def kind(self) -> str:
        """The name that counts and tables use."""
        return "GDN"

    @property
    def ssm_elements(self) -> int:
        """Numbers in the recurrent state."""
        return self.value_heads * self.value_dim * self.key_dim

    @property
    def conv_elements(self) -> int:
        """Numbers in the convolution state."""
        channels = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        return channels * (self.kernel - 1)

    def on_rank(self, tp: int) -> "Gdn":
        """Split the heads."""
        return replace(
            self,
            key_heads=split(self.key_heads, tp, "linear key heads"),
            value_heads=split(self.value_heads, tp, "linear value heads"),
        )


@dataclass(frozen=True, slots=True)
class Kda(Recurrent):
    """Kimi Delta Attention: state (heads, dim, dim); convolution over q, k and v.

    >>> layer = Kda(heads=32, head_dim=128, kernel=4)
    >>> layer.ssm_bytes(Dtypes()), layer.conv_bytes(Dtypes())
    (2097152, 73728)
    """

    heads: int
    head_dim: int
    kernel: int

    @property
    def kind(self) -> str:
        """The name that counts and tables use."""
        return "KDA"

    @property
    def ssm_elements(self) -> int:
        """Numbers in the recurrent state."""
        return self.heads * self.head_dim * self.head_dim

    @property
    def conv_elements(self) -> int:
        """Numbers in the convolution state."""
        return 3 * self.heads * self.head_dim * (self.kernel - 1)

    def on_rank(self, tp: int) -> "Kda":
        """Split the heads."""
        return replace(self, heads=split(self.heads, tp, "KDA heads"))


@dataclass(frozen=True, slots=True)
class Lightning(Recurrent):
    """Lightning attention: state (heads, dim, dim), no convolution.

    >>> Lightning(heads=64, head_dim=128).ssm_bytes(Dtypes())
    4194304
    """

    heads: int
    head_dim: int

    @property
    def kind(self) -> str:
        """The name that counts and tables use."""
        return "lightning"

    @property
    def ssm_elements(self) -> int:
        """Numbers in the recurrent state."""
        return self.heads * self.head_dim * self.head_dim

    @property
    def conv_elements(self) -> int:
        """Nothing."""
        return 0

    def on_rank(self, tp: int) -> "Lightning":
        """Split the heads."""
        return replace(self, heads=split(self.heads, tp, "lightning heads"))


@dataclass(frozen=True, slots=True)
class Mamba2(Recurrent):
    """Mamba-2: state (heads, head dim, state size); convolution over x, B and C of each group.

    >>> layer = Mamba2(heads=128, head_dim=64, state_size=128, groups=1, kernel=4)
    >>> layer.ssm_bytes(Dtypes()), layer.conv_bytes(Dtypes())
    (4194304, 50688)
    """

    heads: int
    head_dim: int
    state_size: int
    groups: int
    kernel: int

    @property
    def kind(self) -> str:
        """The name that counts and tables use."""
        return "Mamba2"

    @property
    def ssm_elements(self) -> int:
        """Numbers in the recurrent state."""
        return self.heads * self.head_dim * self.state_size

    @property
    def conv_elements(self) -> int:
        """Numbers in the convolution state."""
        channels = self.heads * self.head_dim + 2 * self.groups * self.state_size
        return channels * (self.kernel - 1)

    def on_rank(self, tp: int) -> "Mamba2":
        """Split heads and groups; with fewer groups than ranks every rank keeps one."""
        groups = 1 if self.groups < tp else split(self.groups, tp, "Mamba groups")
        return replace(self, heads=split(self.heads, tp, "Mamba heads"), groups=groups)


@dataclass(frozen=True, slots=True)
class Mamba1(Recurrent):
    """Mamba-1: state (channels, state size); convolution over the channels only.

    >>> layer = Mamba1(channels=8192, state_size=16, kernel=4)
    >>> layer.ssm_bytes(Dtypes()), layer.conv_bytes(Dtypes())
    (524288, 49152)
    """

    channels: int
    state_size: int
    kernel: int

    @property
    def kind(self) -> str:
        """The name that counts and tables use."""
        return "Mamba1"

    @property
    def ssm_elements(self) -> int:
        """Numbers in the recurrent state."""
        return self.channels * self.state_size

    @property
    def conv_elements(self) -> int:
        """Numbers in the convolution state."""
        return self.channels * (self.kernel - 1)

    def on_rank(self, tp: int) -> "Mamba1":
        """Split the channels."""
        return replace(self, channels=split(self.channels, tp, "Mamba channels"))


@dataclass(frozen=True, slots=True)
class ShortConv(Recurrent):
    """A gated short convolution (LFM2): no recurrent state.

    >>> ShortConv(channels=2048, kernel=3).conv_bytes(Dtypes())
    8192
    """

    channels: int
    kernel: int

    @property
    def kind(self) -> str:
        """The name that counts and tables use."""
        return "ShortConv"

    @property
    def ssm_elements(self) -> int:
        """Nothing."""
        return 0

    @property
    def conv_elements(self) -> int:
        """Numbers in the convolution state."""
        return self.channels * (self.kernel - 1)

    def on_rank(self, tp: int) -> "ShortConv":
        """Split the channels."""
        return replace(self, channels=split(self.channels, tp, "convolution channels"))
