"""Mamba-2's scan and step against their formula, with continued and padded sequences."""

from typing import Any

import cpu_kernel_reference as reference
import numpy as np
import pytest
import torch

from prfaas_cpu.kernels import mamba2

HEADS, WIDTH, GROUPS, STATE, SLOTS = 4, 6, 2, 8, 5
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}
BOUNDS = [0, 70, 71, 80]


class World:
    """Random inputs, the same for the kernel and the reference."""

    def __init__(self, tokens: int = BOUNDS[-1]) -> None:
        torch.manual_seed(0)
        self.x, self.dt = torch.randn(tokens, HEADS, WIDTH), torch.randn(tokens, HEADS)
        self.b, self.c = torch.randn(2, tokens, GROUPS, STATE)
        self.a, self.d, self.bias = -torch.rand(HEADS), torch.randn(HEADS), torch.randn(HEADS)

    def scan(self, part: slice, states: torch.Tensor | None, bounds: list[int]) -> Any:
        out = torch.full_like(self.x[part], float("nan")).unsqueeze(0)
        _, finals, _ = mamba2.scan_prefill(
            *(t[part].unsqueeze(0) for t in (self.x, self.dt)),
            self.a,
            *(t[part].unsqueeze(0) for t in (self.b, self.c)),
            chunk_size=64,
            D=self.d,
            dt_bias=self.bias,
            cu_seqlens=torch.tensor(bounds, dtype=torch.int32),
            initial_states=states,
            dt_softplus=True,
            out=out,
            return_track_states=True,
        )
        return out[0], finals

    def expect(self, part: slice, state: torch.Tensor, **changed: torch.Tensor) -> Any:
        step = reference.softplus((self.dt[part] + self.bias).double().numpy())
        decay = changed.get("a", self.a)
        inputs = (self.x[part], decay, self.b[part], self.c[part], self.d, state)
        x, a, b, c, d, start = (t.double().numpy() for t in inputs)
        return reference.mamba2(x, step, a, b, c, d, start)


def random_states(count: int) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(count, HEADS, WIDTH, STATE)


@pytest.mark.parametrize("continued", [True, False])
def test_scan_follows_the_formula_from_any_state(continued: bool) -> None:
    world, states = World(), random_states(3)
    out, finals = world.scan(slice(0, 80), states if continued else None, BOUNDS)
    for i in range(3):
        part = slice(BOUNDS[i], BOUNDS[i + 1])
        expected, final = world.expect(part, states[i] * continued)
        np.testing.assert_allclose(out[part], expected, atol=2e-5)
        np.testing.assert_allclose(finals[i], final, atol=2e-5)


@pytest.mark.parametrize("cut", [1, 63, 64, 65, 79])
def test_a_cut_prompt_gives_the_same_result(cut: int) -> None:
    world, states = World(), random_states(1)
    whole, whole_state = world.scan(slice(0, 80), states, [0, 80])
    head, between = world.scan(slice(0, cut), states, [0, cut])
    tail, state = world.scan(slice(cut, 80), between, [0, 80 - cut])
    torch.testing.assert_close(torch.cat([head, tail]), whole, **ROUNDING)
    torch.testing.assert_close(state, whole_state, **ROUNDING)


def test_step_follows_the_formula_and_leaves_padding_alone() -> None:
    world, states = World(3), random_states(SLOTS)
    before, out = states.clone(), torch.full((3, HEADS, WIDTH), float("nan"))
    mamba2.step_decode(
        states,
        world.x,
        world.dt.unsqueeze(-1).expand(-1, -1, WIDTH),
        world.a[:, None, None].expand(-1, WIDTH, STATE),
        world.b,
        world.c,
        world.d[:, None].expand(-1, WIDTH),
        dt_bias=world.bias[:, None].expand(-1, WIDTH),
        dt_softplus=True,
        state_batch_indices=torch.tensor([4, -1, 0], dtype=torch.int32),
        out=out,
    )
    for row, slot in ((0, 4), (2, 0)):
        expected, state = world.expect(slice(row, row + 1), before[slot])
        np.testing.assert_allclose(out[row], expected[0], atol=2e-5)
        np.testing.assert_allclose(states[slot], state, atol=2e-5)
    assert not out[1].any()
    assert torch.equal(states[[1, 2, 3]], before[[1, 2, 3]])


def test_a_broken_reference_is_told_apart() -> None:
    world, states = World(), random_states(1)
    out, _ = world.scan(slice(0, 80), states, [0, 80])
    forgetful, _ = world.expect(slice(0, 80), states[0], a=world.a * 1.1)
    assert not np.allclose(out, forgetful, atol=2e-5)
    stateless, _ = world.expect(slice(0, 80), torch.zeros_like(states[0]))
    assert not np.allclose(out, stateless, atol=2e-5)


def test_tracked_states_are_refused() -> None:
    world = World(1)
    inputs = [t.unsqueeze(0) for t in (world.x, world.dt)]
    with pytest.raises(NotImplementedError, match="tracked"):
        mamba2.scan_prefill(
            *inputs,
            world.a,
            world.b.unsqueeze(0),
            world.c.unsqueeze(0),
            64,
            out=inputs[0],
            cu_seqlens=torch.tensor([0, 1]),
            track_seq_idx=torch.tensor([0]),
        )
