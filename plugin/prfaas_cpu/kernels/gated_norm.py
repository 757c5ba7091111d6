"""Normalisation with an activation gate, as Gated DeltaNet and Mamba-2 use it."""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own customary name


def normalise_gated(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    eps: float,
    z: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
    activation: str = "swish",
    quant_heads: int = 0,
) -> tuple[torch.Tensor, None, None]:
    """Return (norm(x) * act(z), None, None), or norm(x * act(z)) when the gate comes first.

    `x` is (rows, width), `z` the same or (tokens, heads, width); the norm is taken per group of
    `group_size`.

    Raises:
        NotImplementedError: for FP8 output.

    Source: sglang 0.5.23 kernels/ops/attention/fla/layernorm_gated.py, `_layer_norm_fwd`.
    """
    if quant_heads:
        raise NotImplementedError("_layer_norm_fwd with FP8 output, on CPU")
    gate = None if z is None else _activate(z.float().reshape(x.shape), activation)
    wide = x.float()
    if gate is not None and not norm_before_gate:
        wide = wide * gate
    groups = wide.reshape(x.shape[0], -1, group_size or x.shape[1])
    y = _normalise(groups, eps, rms=is_rms_norm).reshape(x.shape) * weight.float()
    if bias is not None:
        y = y + bias.float()
    if gate is not None and norm_before_gate:
        y = y * gate
    return _store(y, x.dtype, out), None, None


def normalise_fused(
    x: torch.Tensor,
    g: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    activation: str = "swish",
    eps: float = 1e-5,
    residual: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    residual_dtype: torch.dtype | None = None,
    is_rms_norm: bool = False,
    **_unused: Any,
) -> tuple[torch.Tensor, None, None, torch.Tensor]:
    """Return (norm(x + residual) * act(g), None, None, x + residual).

    Source: sglang 0.5.23 kernels/ops/attention/fla/fused_norm_gate.py, `layer_norm_gated_fwd`.
    """
    wide = x.float() if residual is None else x.float() + residual.float()
    y = _normalise(wide, eps, rms=is_rms_norm)
    if weight is not None:
        y = y * weight.float()
    if bias is not None:
        y = y + bias.float()
    y = y * _activate(g.float().reshape(x.shape), activation)
    kept = x if residual is None and residual_dtype is None else wide.to(residual_dtype or x.dtype)
    return y.to(out_dtype or x.dtype), None, None, kept


def _normalise(x: torch.Tensor, eps: float, *, rms: bool) -> torch.Tensor:
    if not rms:
        x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def _activate(x: torch.Tensor, activation: str) -> torch.Tensor:
    if activation in ("silu", "swish"):
        return F.silu(x)
    if activation == "sigmoid":
        return torch.sigmoid(x)
    raise NotImplementedError(f"gated norm activation {activation!r}, on CPU")


def _store(y: torch.Tensor, dtype: torch.dtype, out: torch.Tensor | None) -> torch.Tensor:
    return y.to(dtype) if out is None else out.copy_(y)
