"""The papers' formulas in float64, one token and one head at a time: slow and obviously right."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.log1p(np.exp(x))


def convolve(x: Array, weight: Array, bias: Array, tail: Array) -> tuple[Array, Array]:
    """y[d, t] = silu(bias[d] + sum_w weight[d, w] past[d, t + w]); returns y and the new tail."""
    width = weight.shape[1]
    past = np.concatenate([tail, x], axis=1)
    y = np.zeros_like(x)
    for d in range(x.shape[0]):
        for t in range(x.shape[1]):
            y[d, t] = bias[d] + sum(weight[d, w] * past[d, t + w] for w in range(width))
    return silu(y), past[:, past.shape[1] - (width - 1) :]


def gated_delta(
    q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array
) -> tuple[Array, Array]:
    """Gated DeltaNet, equation 10; q, k (T, key heads, K), v (T, H, V), state (H, V, K)."""
    tokens, heads, _ = v.shape
    state, out = state.copy(), np.zeros_like(v)
    group = heads // k.shape[1]
    for t in range(tokens):
        for h in range(heads):
            query, key = (x[t, h // group] for x in (q, k))
            query = query / np.sqrt(query @ query + 1e-6) / np.sqrt(len(query))
            key = key / np.sqrt(key @ key + 1e-6)
            forget = np.eye(len(key)) - beta[t, h] * np.outer(key, key)
            state[h] = np.exp(g[t, h]) * state[h] @ forget + beta[t, h] * np.outer(v[t, h], key)
            out[t, h] = state[h] @ query
    return out, state


def mamba2(
    x: Array, dt: Array, a: Array, b: Array, c: Array, d: Array, state: Array
) -> tuple[Array, Array]:
    """Mamba-2's recurrence; x (T, H, P), dt (T, H), b and c (T, G, N), state (H, P, N)."""
    tokens, heads, _ = x.shape
    state, out = state.copy(), np.zeros_like(x)
    group = heads // b.shape[1]
    for t in range(tokens):
        for h in range(heads):
            write, read = b[t, h // group], c[t, h // group]
            state[h] = np.exp(dt[t, h] * a[h]) * state[h] + dt[t, h] * np.outer(x[t, h], write)
            out[t, h] = state[h] @ read + d[h] * x[t, h]
    return out, state


def rms_norm(x: Array, eps: float) -> Array:
    return np.array([row / np.sqrt(np.mean(row * row) + eps) for row in x])
