"""Put the replacements where SGLang 0.5.23 looks for its kernels."""

import importlib
import logging
from collections.abc import Callable
from typing import Any

from prfaas_cpu.kernels import (
    causal_conv1d,
    gated_delta,
    gated_norm,
    host_cache,
    mamba2,
    shared_expert,
    sliding_window,
)

_log = logging.getLogger(__name__)

_GDN_BACKEND = "sglang.srt.layers.attention.linear.gdn_backend"
_GDN_KERNEL = "sglang.srt.layers.attention.linear.kernels.gdn_triton"
_MAMBA_MIXER = "sglang.srt.layers.attention.mamba.mamba"
_OPS = "sglang.kernels.ops"
_TORCH_NATIVE = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"

REPLACEMENTS: dict[str, Callable[..., Any]] = {
    f"{_GDN_BACKEND}.causal_conv1d_fn": causal_conv1d.convolve_prefill,
    f"{_GDN_BACKEND}.causal_conv1d_update": causal_conv1d.convolve_decode,
    f"{_GDN_BACKEND}.fused_gdn_gating": gated_delta.compute_gates,
    f"{_GDN_KERNEL}.chunk_gated_delta_rule": gated_delta.prefill,
    f"{_GDN_KERNEL}.fused_sigmoid_gating_delta_rule_update": gated_delta.decode,
    f"{_MAMBA_MIXER}.mamba_chunk_scan_combined": mamba2.scan_prefill,
    f"{_MAMBA_MIXER}.selective_state_update": mamba2.step_decode,
    f"{_OPS}.attention.fla.layernorm_gated._layer_norm_fwd": gated_norm.normalise_gated,
    f"{_OPS}.attention.fla.fused_norm_gate.layer_norm_gated_fwd": gated_norm.normalise_fused,
    f"{_OPS}.elementwise.elementwise._launch_fused_gate_sigmoid_mul": (
        shared_expert.gate_shared_expert
    ),
}
"""What SGLang finds by name on a CPU, and what stands there instead."""

WRAPPED = (
    f"{_TORCH_NATIVE}._run_sdpa_forward_extend",
    f"{_TORCH_NATIVE}._run_sdpa_forward_decode",
)
"""Attention that looks into the wrong pool for a sliding-window layer."""

UNBOUND: dict[str, Callable[..., Any]] = {
    "causal_conv1d_fn": causal_conv1d.convolve_prefill,
    "causal_conv1d_fn_triton": causal_conv1d.convolve_prefill,
    "causal_conv1d_update": causal_conv1d.convolve_decode,
    "causal_conv1d_update_triton": causal_conv1d.convolve_decode,
}
"""Names that the Mamba-2 mixer uses but binds on GPUs only."""


def standin_loaded() -> bool:
    """Tell whether the `sgl_kernel` that SGLang will use is our stand-in."""
    try:
        package = importlib.import_module("sgl_kernel")
    except ImportError:
        return False
    return getattr(package, "__prfaas_standin__", False) is True


def install() -> None:
    """Register every replacement with SGLang, which applies them after all plugins have run."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    mixer = importlib.import_module(_MAMBA_MIXER)
    for name, kernel in UNBOUND.items():
        if not hasattr(mixer, name):
            setattr(mixer, name, kernel)
    for target, kernel in REPLACEMENTS.items():
        HookRegistry.register(target, kernel, HookType.REPLACE)
    host_cache.bind_copies()
    for target in host_cache.PINNING:
        HookRegistry.register(target, host_cache.without_pinning, HookType.BEFORE)
    for target in WRAPPED:
        HookRegistry.register(target, sliding_window.attend, HookType.AROUND)
    _log.info("CPU kit: %d kernels replaced by torch ones", len(REPLACEMENTS) + len(UNBOUND))
