"""Depthwise causal convolution with a state of the last W - 1 inputs."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own customary name


def convolve_prefill(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = "silu",
    conv_states: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    **_unused: Any,
) -> torch.Tensor:
    """Convolve several sequences laid end to end; mutates `conv_states`.

    `x` is (dim, T), `weight` (dim, W), `conv_states` (slots, dim, W - 1 or more: the last W - 1
    count), `query_start_loc` (B + 1,). A sequence without an initial state starts from zeros.

    Source: sglang 0.5.23 kernels/ops/mamba/causal_conv1d_triton.py, `causal_conv1d_fn`.
    """
    bounds = [0, x.shape[1]] if query_start_loc is None else query_start_loc.tolist()
    out = torch.zeros_like(x)
    for i, start, end in _segments(bounds):
        slot = i if cache_indices is None else int(cache_indices[i])
        state = None if conv_states is None or slot < 0 else conv_states[slot]
        known = has_initial_state is not None and bool(has_initial_state[i])
        window = _window(x[:, start:end], state if known else None, weight.shape[1])
        out[:, start:end] = _convolve(window, weight, bias, activation)
        if state is not None:
            _keep_tail(state, window, weight.shape[1])
    return out


def convolve_decode(
    x: torch.Tensor,
    conv_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = "silu",
    conv_state_indices: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """Convolve one new token of each of B sequences; mutates `conv_states`.

    `x` is (B, dim). Rows of negative slots come back as zeros.

    Raises:
        NotImplementedError: for speculative decoding (several tokens a sequence).
    """
    if x.dim() != 2 or options.get("intermediate_conv_window") is not None:
        raise NotImplementedError("causal_conv1d_update of several tokens a sequence, on CPU")
    if conv_state_indices is None:
        conv_state_indices = torch.arange(x.shape[0])
    live = conv_state_indices >= 0
    slots = conv_state_indices[live].long()
    width = weight.shape[1]
    tails = conv_states[slots][..., conv_states.shape[-1] - (width - 1) :]
    window = torch.cat([tails.to(x.dtype), x[live].unsqueeze(-1)], dim=-1)
    out = torch.zeros_like(x)
    out[live] = _convolve(window, weight, bias, activation).squeeze(-1)
    kept = conv_states[slots]
    kept[..., kept.shape[-1] - (width - 1) :] = window[..., 1:].to(conv_states.dtype)
    conv_states[slots] = kept
    return out


def _segments(bounds: list[int]) -> Iterator[tuple[int, int, int]]:
    for i in range(len(bounds) - 1):
        if bounds[i + 1] > bounds[i]:
            yield i, bounds[i], bounds[i + 1]


def _window(x: torch.Tensor, state: torch.Tensor | None, width: int) -> torch.Tensor:
    """Put the W - 1 inputs before `x` in front of it."""
    if state is None:
        return F.pad(x, (width - 1, 0))
    return torch.cat([state[:, state.shape[1] - (width - 1) :].to(x.dtype), x], dim=1)


def _keep_tail(state: torch.Tensor, window: torch.Tensor, width: int) -> None:
    state[:, state.shape[1] - (width - 1) :] = window[:, window.shape[1] - (width - 1) :].to(
        state.dtype
    )


def _convolve(
    window: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None
) -> torch.Tensor:
    """Convolve (..., dim, W - 1 + T) to (..., dim, T).

    A sum of W shifted products rounds the same wherever a prompt is cut; torch's `conv1d` chooses
    its algorithm by length.
    """
    width = weight.shape[1]
    tokens = window.shape[-1] - (width - 1)
    taps = weight.float()
    wide = window.float()
    out = wide[..., :tokens] * taps[:, 0:1]
    for tap in range(1, width):
        out += wide[..., tap : tap + tokens] * taps[:, tap : tap + 1]
    if bias is not None:
        out += bias.float().unsqueeze(-1)
    return _activate(out, activation).to(window.dtype)


def _activate(x: torch.Tensor, activation: str | None) -> torch.Tensor:
    if activation is None:
        return x
    if activation in ("silu", "swish"):
        return F.silu(x)
    raise NotImplementedError(f"causal_conv1d activation {activation!r}, on CPU")
