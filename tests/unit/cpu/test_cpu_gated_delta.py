"""The gated delta rule against its formula, with continued and padded sequences."""

from dataclasses import dataclass, replace

import cpu_kernel_reference as reference
import numpy as np
import pytest
import torch

from prfaas_cpu.kernels import gated_delta

KEY_HEADS, HEADS, KEY, VALUE, SLOTS = 2, 4, 8, 6, 5
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}
BOUNDS = [0, 70, 71, 80, 80]
SLOT_OF = [3, 0, -1, 2]


@dataclass(frozen=True)
class Inputs:
    """What one prefill reads, without the batch axis of 1."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    beta: torch.Tensor

    @classmethod
    def draw(cls, tokens: int) -> "Inputs":
        torch.manual_seed(0)
        q, k = torch.randn(2, tokens, KEY_HEADS, KEY)
        v = torch.randn(tokens, HEADS, VALUE)
        return cls(q, k, v, -torch.rand(tokens, HEADS), torch.rand(tokens, HEADS))

    def part(self, start: int, stop: int) -> "Inputs":
        return Inputs(*(getattr(self, name)[start:stop] for name in ("q", "k", "v", "g", "beta")))

    def run(self, states: torch.Tensor, slots: list[int], bounds: list[int]) -> torch.Tensor:
        inputs = (x.unsqueeze(0) for x in (self.q, self.k, self.v, self.g, self.beta))
        out, _, _ = gated_delta.prefill(
            *inputs,
            initial_state=states,
            cu_seqlens=torch.tensor(bounds, dtype=torch.int32),
            initial_state_indices=torch.tensor(slots, dtype=torch.int32),
        )
        return out[0]

    def expect(self, state: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        inputs = (self.q, self.k, self.v, self.g, self.beta, state)
        return reference.gated_delta(*(x.double().numpy() for x in inputs))


@pytest.fixture
def states() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(SLOTS, HEADS, VALUE, KEY)


def test_prefill_follows_the_formula_from_any_state(states: torch.Tensor) -> None:
    inputs, before = Inputs.draw(BOUNDS[-1]), states.clone()
    out = inputs.run(states, SLOT_OF, BOUNDS)
    for i, slot in enumerate(SLOT_OF[:2]):
        expected, state = inputs.part(BOUNDS[i], BOUNDS[i + 1]).expect(before[slot])
        np.testing.assert_allclose(out[BOUNDS[i] : BOUNDS[i + 1]], expected, atol=1e-5)
        np.testing.assert_allclose(states[slot], state, atol=1e-5)
    assert not out[BOUNDS[2] : BOUNDS[3]].any()
    assert torch.equal(states[[1, 2, 4]], before[[1, 2, 4]])


@pytest.mark.parametrize("cut", [1, 63, 64, 65, 79])
def test_a_cut_prompt_gives_the_same_result(states: torch.Tensor, cut: int) -> None:
    inputs, pieces = Inputs.draw(80), states.clone()
    whole = inputs.run(states, [1], [0, 80])
    head = inputs.part(0, cut).run(pieces, [1], [0, cut])
    tail = inputs.part(cut, 80).run(pieces, [1], [0, 80 - cut])
    torch.testing.assert_close(torch.cat([head, tail]), whole, **ROUNDING)
    torch.testing.assert_close(pieces, states, **ROUNDING)


def test_decode_follows_the_formula_and_leaves_padding_alone(states: torch.Tensor) -> None:
    inputs, before = Inputs.draw(3), states.clone()
    a, b, a_log, bias = torch.randn(3, HEADS), torch.randn(3, HEADS), torch.rand(4), torch.rand(4)
    slots = [4, -1, 0]
    out = gated_delta.decode(
        A_log=a_log,
        dt_bias=bias,
        q=inputs.q.unsqueeze(0),
        k=inputs.k.unsqueeze(0),
        v=inputs.v.unsqueeze(0),
        a=a,
        b=b,
        initial_state_source=states,
        initial_state_indices=torch.tensor(slots, dtype=torch.int32),
    )[0]
    g = -np.exp(a_log.double().numpy()) * reference.softplus((a + bias).double().numpy())
    beta = 1 / (1 + np.exp(-b.double().numpy()))
    gated = replace(inputs, g=torch.from_numpy(g), beta=torch.from_numpy(beta))
    for row, slot in ((0, 4), (2, 0)):
        expected, state = gated.part(row, row + 1).expect(before[slot])
        np.testing.assert_allclose(out[row], expected[0], atol=1e-5)
        np.testing.assert_allclose(states[slot], state, atol=1e-5)
    assert not out[1].any()
    assert torch.equal(states[[1, 2, 3]], before[[1, 2, 3]])


@pytest.mark.parametrize("lost", ["g", "beta", "state"])
def test_a_broken_reference_is_told_apart(states: torch.Tensor, lost: str) -> None:
    inputs, before = Inputs.draw(80), states[1].clone()
    out = inputs.run(states, [1], [0, 80])
    broken = {
        "g": replace(inputs, g=torch.zeros_like(inputs.g)).expect(before),
        "beta": replace(inputs, beta=torch.ones_like(inputs.beta)).expect(before),
        "state": inputs.expect(torch.zeros_like(before)),
    }[lost]
    assert not np.allclose(out, broken[0], atol=1e-5)


def test_speculative_verification_is_refused(states: torch.Tensor) -> None:
    nothing = torch.zeros(1)
    with pytest.raises(NotImplementedError, match="verification"):
        gated_delta.decode(*[nothing] * 9, disable_state_update=True)
