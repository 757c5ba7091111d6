"""The sigmoid gate of a mixture's shared expert."""

import torch


def gate_shared_expert(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    shared_output: torch.Tensor,
    output: torch.Tensor,
    *,
    do_add: bool = False,
) -> None:
    """Write sigmoid(h . w) * shared into `output`, or add it there.

    All are (T, width), `gate_weight` (width,).

    Source: sglang 0.5.23 kernels/ops/elementwise/elementwise.py, `_launch_fused_gate_sigmoid_mul`.
    """
    gate = torch.sigmoid((hidden_states.float() * gate_weight.float()).sum(-1, keepdim=True))
    gated = shared_output.float() * gate
    output.copy_(gated + output.float() if do_add else gated)
