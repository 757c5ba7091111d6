"""The causal convolution against its formula, with continued and padded sequences."""

import cpu_kernel_reference as reference
import numpy as np
import pytest
import torch

from prfaas_cpu.kernels.causal_conv1d import convolve_decode, convolve_prefill

DIM, WIDTH, SLOTS = 6, 4, 5
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}
BOUNDS = [0, 20, 22, 30, 30]
SLOT_OF = [3, 0, -1, 2]
CONTINUED = [True, True, False, False]


class World:
    """Random inputs, the same for the kernel and the reference."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(DIM, BOUNDS[-1])
        self.weight, self.bias = torch.randn(DIM, WIDTH), torch.randn(DIM)
        self.states = torch.randn(SLOTS, DIM, WIDTH - 1)

    def prefill(self, x: torch.Tensor, states: torch.Tensor, **batch: list[int]) -> torch.Tensor:
        return convolve_prefill(
            x,
            self.weight,
            self.bias,
            conv_states=states,
            has_initial_state=torch.tensor(batch["continued"]),
            cache_indices=torch.tensor(batch["slots"], dtype=torch.int32),
            query_start_loc=torch.tensor(batch["bounds"], dtype=torch.int32),
        )

    def expect(self, x: torch.Tensor, tail: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        inputs = (t.double().numpy() for t in (x, self.weight, self.bias, tail))
        return reference.convolve(*inputs)


@pytest.fixture
def world() -> World:
    return World()


def test_prefill_follows_the_formula(world: World) -> None:
    states = world.states.clone()
    out = world.prefill(world.x, states, continued=CONTINUED, slots=SLOT_OF, bounds=BOUNDS)
    touched = set()
    for i, slot in enumerate(SLOT_OF[:3]):
        part = slice(BOUNDS[i], BOUNDS[i + 1])
        tail = world.states[slot] if CONTINUED[i] else torch.zeros(DIM, WIDTH - 1)
        expected, expected_tail = world.expect(world.x[:, part], tail)
        np.testing.assert_allclose(out[:, part], expected, atol=1e-5)
        if slot >= 0:
            touched.add(slot)
            np.testing.assert_allclose(states[slot], expected_tail, atol=1e-6)
    untouched = [slot for slot in range(SLOTS) if slot not in touched]
    assert torch.equal(states[untouched], world.states[untouched])


@pytest.mark.parametrize("cut", [1, 2, 7, 29])
def test_a_cut_prompt_gives_the_same_result(world: World, cut: int) -> None:
    whole, pieces = world.states.clone(), world.states.clone()
    out = world.prefill(world.x, whole, continued=[0], slots=[1], bounds=[0, 30])
    head = world.prefill(world.x[:, :cut], pieces, continued=[0], slots=[1], bounds=[0, cut])
    rest = world.x[:, cut:]
    tail = world.prefill(rest, pieces, continued=[1], slots=[1], bounds=[0, 30 - cut])
    torch.testing.assert_close(torch.cat([head, tail], 1), out, **ROUNDING)
    torch.testing.assert_close(pieces, whole, **ROUNDING)


def test_decode_follows_the_formula_and_leaves_padding_alone(world: World) -> None:
    states = world.states.clone()
    slots = [4, -1, 1]
    x = world.x[:, :3].T.contiguous()
    out = convolve_decode(
        x, states, world.weight, world.bias, conv_state_indices=torch.tensor(slots)
    )
    for row, slot in ((0, 4), (2, 1)):
        expected, tail = world.expect(x[row].unsqueeze(1), world.states[slot])
        np.testing.assert_allclose(out[row], expected[:, 0], atol=1e-5)
        np.testing.assert_allclose(states[slot], tail, atol=1e-6)
    assert not out[1].any()
    assert torch.equal(states[[0, 2, 3]], world.states[[0, 2, 3]])


def test_a_reference_without_the_continued_state_is_told_apart(world: World) -> None:
    states = world.states.clone()
    out = world.prefill(world.x, states, continued=CONTINUED, slots=SLOT_OF, bounds=BOUNDS)
    broken, _ = world.expect(world.x[:, :20], torch.zeros(DIM, WIDTH - 1))
    assert not np.allclose(out[:, :20], broken, atol=1e-5)


def test_speculative_windows_are_refused(world: World) -> None:
    with pytest.raises(NotImplementedError, match="several tokens"):
        convolve_decode(torch.zeros(1, DIM, 2), world.states, world.weight)
