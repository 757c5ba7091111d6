"""Gated norms and the shared expert's gate against their formulas."""

import cpu_kernel_reference as reference
import numpy as np
import pytest
import torch

from prfaas_cpu.kernels.gated_norm import normalise_fused, normalise_gated
from prfaas_cpu.kernels.shared_expert import gate_shared_expert

ROWS, WIDTH, EPS = 5, 12, 1e-5


@pytest.fixture
def tensors() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH), torch.randn(WIDTH)]


def doubles(tensors: list[torch.Tensor]) -> list[np.ndarray]:
    return [t.double().numpy() for t in tensors]


def test_norm_before_the_gate(tensors: list[torch.Tensor]) -> None:
    x, z, weight = tensors
    out, _, _ = normalise_gated(x, weight, None, EPS, z=z, is_rms_norm=True)
    wide, gate, scale = doubles(tensors)
    expected = reference.rms_norm(wide, EPS) * scale * reference.silu(gate)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_gate_before_a_norm_of_groups_into_a_given_output(tensors: list[torch.Tensor]) -> None:
    x, z, weight = tensors
    given = torch.empty_like(x)
    out, _, _ = normalise_gated(
        x, weight, None, EPS, z, given, 4, norm_before_gate=False, is_rms_norm=True
    )
    wide, gate, scale = doubles(tensors)
    groups = (wide * reference.silu(gate)).reshape(-1, 4)
    expected = reference.rms_norm(groups, EPS).reshape(ROWS, WIDTH) * scale
    np.testing.assert_allclose(given, expected, atol=1e-5)
    assert out is given
    assert not np.allclose(given, reference.rms_norm(wide, EPS) * scale, atol=1e-5)


def test_layer_norm_subtracts_the_mean_and_adds_the_bias(tensors: list[torch.Tensor]) -> None:
    x, _, weight = tensors
    out, _, _ = normalise_gated(x, weight, weight, EPS)
    wide, _, scale = doubles(tensors)
    centred = wide - wide.mean(1, keepdims=True)
    np.testing.assert_allclose(out, reference.rms_norm(centred, EPS) * scale + scale, atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_fused_norm_adds_the_residual_and_returns_it(
    tensors: list[torch.Tensor], activation: str
) -> None:
    x, z, weight = tensors
    out, _, _, kept = normalise_fused(
        x, z, weight, None, activation, EPS, residual=z, is_rms_norm=True
    )
    wide, gate, scale = doubles(tensors)
    act = reference.silu(gate) if activation == "silu" else 1 / (1 + np.exp(-gate))
    np.testing.assert_allclose(out, reference.rms_norm(wide + gate, EPS) * scale * act, atol=1e-5)
    np.testing.assert_allclose(kept, wide + gate, atol=1e-6)


def test_unknown_activations_and_fp8_are_refused(tensors: list[torch.Tensor]) -> None:
    x, z, weight = tensors
    with pytest.raises(NotImplementedError, match="relu"):
        normalise_gated(x, weight, None, EPS, z=z, activation="relu")
    with pytest.raises(NotImplementedError, match="FP8"):
        normalise_gated(x, weight, None, EPS, quant_heads=2)


@pytest.mark.parametrize("add", [True, False])
def test_the_shared_expert_is_scaled_by_its_gate(tensors: list[torch.Tensor], add: bool) -> None:
    hidden, shared, weight = tensors
    output = hidden.clone()
    gate_shared_expert(hidden, weight, shared, output, do_add=add)
    wide, part, scale = doubles(tensors)
    gated = part / (1 + np.exp(-(wide @ scale)))[:, None]
    np.testing.assert_allclose(output, gated + wide * add, atol=1e-5)
