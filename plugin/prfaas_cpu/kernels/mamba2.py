"""Mamba-2: prefill scan and decode step of the selective state space model.

Per head, with state S (P, N) and step d_t = softplus(dt_t + dt_bias):

    S_t = exp(d_t A) S_{t-1} + d_t x_t B_t^T          y_t = S_t C_t + D x_t

Source: Dao, Gu, "Transformers are SSMs" (2024), section 2 and 7.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own customary name

_BLOCK_TOKENS = 64


def scan_prefill(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,  # noqa: N803 - SGLang's names
    B: torch.Tensor,  # noqa: N803
    C: torch.Tensor,  # noqa: N803
    chunk_size: int,  # noqa: ARG001 - the scan has no chunks
    *,
    out: torch.Tensor,
    cu_seqlens: torch.Tensor,
    D: torch.Tensor | None = None,  # noqa: N803
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    state_dtype: torch.dtype | None = None,
    return_track_states: bool = False,
    **options: Any,
) -> tuple[Any, ...]:
    """Scan sequences laid end to end into `out`; return (None, final states (B, H, P, N)[, None]).

    `x` and `out` are (1, T, H, P), `dt` (1, T, H), `A` (H,), `B` and `C` (1, T, G, N), `D` (H,) or
    (H, P).

    Raises:
        NotImplementedError: for a gate `z`, or tracked states (the `extra_buffer` strategy).

    Source: sglang 0.5.23 kernels/ops/mamba/triton_ops/ssd_combined.py, `mamba_chunk_scan_combined`.
    """
    tracked = options.get("track_seq_idx")
    if z is not None or (tracked is not None and tracked.numel() > 0):
        raise NotImplementedError("mamba_chunk_scan_combined with z or tracked states, on CPU")
    step = _step_size(dt[0], dt_bias, softplus=dt_softplus).clamp(*dt_limit)
    heads = x.shape[2]
    inputs, writes, reads = x[0].float(), _per_head(B[0], heads), _per_head(C[0], heads)
    decay = torch.exp(step * A.float())
    driven = step.unsqueeze(-1) * inputs
    bounds = cu_seqlens.tolist()
    finals = []
    for i in range(len(bounds) - 1):
        state = _initial(initial_states, i, (heads, x.shape[3], B.shape[3]))
        for at in range(bounds[i], bounds[i + 1], _BLOCK_TOKENS):
            block = slice(at, min(at + _BLOCK_TOKENS, bounds[i + 1]))
            y, state = _run_block(driven[block], decay[block], writes[block], reads[block], state)
            out[0, block] = (y + _skip(inputs[block], D)).to(out.dtype)
        finals.append(state)
    states = torch.stack(finals).to(state_dtype or x.dtype)
    return (None, states, None) if return_track_states else (None, states)


def step_decode(
    state: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,  # noqa: N803 - SGLang's names
    B: torch.Tensor,  # noqa: N803
    C: torch.Tensor,  # noqa: N803
    D: torch.Tensor | None = None,  # noqa: N803
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
    **options: Any,
) -> torch.Tensor:
    """Advance B sequences by one token each; mutates `state` (slots, H, P, N) and `out` (B, H, P).

    `x` and `dt` are (B, H, P), `A` (H, P, N), `B` and `C` (B, G, N), `D` and `dt_bias` (H, P).
    Rows of negative slots come back as zeros.

    Raises:
        NotImplementedError: for a gate `z` or speculative verification.

    Source: sglang 0.5.23 kernels/ops/mamba/triton_ops/mamba_ssm.py, `selective_state_update`.
    """
    if z is not None or x.dim() != 3 or options.get("disable_state_update"):
        raise NotImplementedError("selective_state_update with z or several tokens, on CPU")
    if state_batch_indices is None:
        state_batch_indices = torch.arange(x.shape[0])
    live = state_batch_indices >= 0
    slots = state_batch_indices[live].long()
    step = _step_size(dt[live], dt_bias, softplus=dt_softplus)
    inputs = x[live].float()
    writes, reads = _per_head(B[live], x.shape[1]), _per_head(C[live], x.shape[1])
    after = torch.addcmul(
        (step * inputs).unsqueeze(-1) * writes.unsqueeze(-2),
        state[slots].float(),
        torch.exp(step.unsqueeze(-1) * A.float()),
    )
    state[slots] = after.to(state.dtype)
    out.zero_()
    y = (after @ reads.unsqueeze(-1)).squeeze(-1) + _skip(inputs, D)
    out[live] = y.to(out.dtype)
    return out


def _step_size(dt: torch.Tensor, bias: torch.Tensor | None, *, softplus: bool) -> torch.Tensor:
    step = dt.float() if bias is None else dt.float() + bias.float()
    return F.softplus(step) if softplus else step


def _per_head(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Repeat groups to heads: (T, G, N) to (T, H, N)."""
    return x.float().repeat_interleave(heads // x.shape[1], 1)


def _initial(states: torch.Tensor | None, i: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.zeros(shape) if states is None else states[i].float()


def _skip(x: torch.Tensor, d: torch.Tensor | None) -> torch.Tensor | float:
    if d is None:
        return 0.0
    return (d.float() if d.dim() == 2 else d.float().unsqueeze(-1)) * x


def _run_block(
    driven: torch.Tensor,
    decay: torch.Tensor,
    writes: torch.Tensor,
    reads: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Step through one block, one fused multiply-add a token; return (S C, state after it)."""
    written = driven.unsqueeze(-1) * writes.unsqueeze(-2)
    history = torch.empty_like(written)
    factors = decay[..., None, None].unbind(0)
    for after, a, x in zip(history.unbind(0), factors, written.unbind(0), strict=True):
        state = torch.addcmul(x, state, a, out=after)
    return (history @ reads.unsqueeze(-1)).squeeze(-1), state.clone()
