"""Gated DeltaNet: gates, prefill and decode of the gated delta rule.

Per head, with state S (V, K), decay a_t = exp(g_t), and keys and queries normalised to length 1:

    S_t = a_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T          o_t = S_t q_t / sqrt(K)

Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks" (2024), equation 10.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own customary name

_BLOCK_TOKENS = 64
_NORM_EPS = 1e-6


def compute_gates(
    a_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor, *_unused: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-decay g and write strength beta, both (1, T, H) fp32, of `a` and `b` (T, H)."""
    g = -a_log.float().exp() * F.softplus(a.float() + dt_bias.float())
    return g.unsqueeze(0), torch.sigmoid(b.float()).unsqueeze(0)


def prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
    cu_seqlens: torch.Tensor,
    initial_state_indices: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = True,
    **_unused: Any,
) -> tuple[torch.Tensor, None, None]:
    """Run several sequences laid end to end; mutates `initial_state` (slots, H, V, K).

    `q` and `k` are (1, T, key heads, K), `v` (1, T, H, V), `g` and `beta` (1, T, H). Returns
    (o, None, None), o shaped as `v`: SGLang reads the state from the pool, and no checkpoints are
    made on CPU.

    Source: sglang 0.5.23 srt/layers/attention/linear/kernels/gdn_triton.py, `extend`.
    """
    queries, keys = _prepare(q[0], k[0], v.shape[2], normalise=use_qk_l2norm_in_kernel)
    values, decays, betas = v[0].float(), g[0].float().exp(), beta[0].float()
    out = torch.zeros_like(values)
    bounds = cu_seqlens.tolist()
    for i, slot in enumerate(initial_state_indices.tolist()[: len(bounds) - 1]):
        tokens = slice(bounds[i], bounds[i + 1])
        if slot < 0 or tokens.start >= tokens.stop:
            continue
        state = initial_state[slot].float()
        for at in range(tokens.start, tokens.stop, _BLOCK_TOKENS):
            block = slice(at, min(at + _BLOCK_TOKENS, tokens.stop))
            out[block], state = _run_block(
                queries[block], keys[block], values[block], (decays[block], betas[block]), state
            )
        initial_state[slot] = state.to(initial_state.dtype)
    return out.unsqueeze(0).to(v.dtype), None, None


def decode(
    A_log: torch.Tensor,  # noqa: N803 - SGLang passes it by this name
    dt_bias: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    initial_state_source: torch.Tensor,
    initial_state_indices: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = True,
    **options: Any,
) -> torch.Tensor:
    """Advance B sequences by one token each; mutates `initial_state_source` (slots, H, V, K).

    Shapes as in `prefill`, with T = B. Rows of negative slots come back as zeros.

    Raises:
        NotImplementedError: for speculative verification.
    """
    if options.get("disable_state_update") or options.get("intermediate_states_buffer") is not None:
        raise NotImplementedError("fused_sigmoid_gating_delta_rule_update for verification, on CPU")
    g, beta = compute_gates(A_log, a, b, dt_bias)
    live = initial_state_indices >= 0
    slots = initial_state_indices[live].long()
    queries, keys = _prepare(q[0], k[0], v.shape[2], normalise=use_qk_l2norm_in_kernel)
    transition, written = _steps(keys[live], v[0][live].float(), g[0][live].exp(), beta[0][live])
    state = initial_state_source[slots].float() @ transition + written
    initial_state_source[slots] = state.to(initial_state_source.dtype)
    out = torch.zeros_like(v)
    out[0, live] = (state @ queries[live].unsqueeze(-1)).squeeze(-1).to(v.dtype)
    return out


def _prepare(
    q: torch.Tensor, k: torch.Tensor, heads: int, *, normalise: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalise, scale the queries by 1/sqrt(K), and repeat key heads to value heads."""
    q, k = q.float(), k.float()
    if normalise:
        q, k = _unit(q), _unit(k)
    q = q * q.shape[-1] ** -0.5
    repeat = heads // k.shape[1]
    return q.repeat_interleave(repeat, 1), k.repeat_interleave(repeat, 1)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _NORM_EPS)


def _steps(
    k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, beta: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a_t (I - beta_t k_t k_t^T) and beta_t v_t k_t^T, all that a step needs."""
    row = k.unsqueeze(-2)
    eye = torch.eye(k.shape[-1], dtype=k.dtype)
    transition = decay[..., None, None] * (eye - (k * beta.unsqueeze(-1)).unsqueeze(-1) * row)
    return transition, (v * beta.unsqueeze(-1)).unsqueeze(-1) * row


def _run_block(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gates: tuple[torch.Tensor, torch.Tensor],
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Step through one block, one matrix product a token; return (o, state after it)."""
    transition, written = _steps(k, v, *gates)
    history = torch.empty_like(written)
    for after, m, x in zip(history.unbind(0), transition.unbind(0), written.unbind(0), strict=True):
        state = torch.baddbmm(x, state, m, out=after)
    return (history @ q.unsqueeze(-1)).squeeze(-1), state.clone()
