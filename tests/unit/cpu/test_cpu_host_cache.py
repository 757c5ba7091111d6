"""Copies between device and host memory, for both layouts that SGLang has on a CPU."""

import torch

from prfaas_cpu.kernels.host_cache import copy_layers, gather_pages, scatter_pages, without_pinning

LAYERS, ROWS, PAGES, PAGE, WIDTH = 3, 20, 6, 4, 5


def rows(page: int) -> list[int]:
    return list(range(page * PAGE, (page + 1) * PAGE))


def test_rows_go_to_the_rows_that_are_named() -> None:
    source = [torch.randn(ROWS, WIDTH) for _ in range(LAYERS)]
    target = [torch.zeros(ROWS, WIDTH) for _ in range(LAYERS)]
    copy_layers(source, target, torch.tensor([7, 2]), torch.tensor([0, 19]), PAGE)
    for one, other in zip(source, target, strict=True):
        assert torch.equal(other[0], one[7])
        assert torch.equal(other[19], one[2])
        assert other[1:19].abs().sum() == 0


def test_pages_of_all_layers_come_back_layer_by_layer() -> None:
    keys = [torch.randn(ROWS, WIDTH) for _ in range(LAYERS)]
    values = [torch.randn(ROWS, WIDTH) for _ in range(LAYERS)]
    host = [torch.zeros(PAGES, LAYERS, PAGE, WIDTH) for _ in range(2)]
    device = torch.tensor([*rows(3), *rows(1)])
    pages = torch.tensor([*rows(5), *rows(0)])
    gather_pages([*keys, *values], host, device, pages, PAGE)
    assert torch.equal(host[0][5, 2], keys[2][rows(3)])
    assert torch.equal(host[1][0, 1], values[1][rows(1)])
    for layer in range(LAYERS):
        back = [torch.zeros(ROWS, WIDTH), torch.zeros(ROWS, WIDTH)]
        scatter_pages(host, back, pages, device, layer, PAGE)
        for found, source in zip(back, (keys, values), strict=True):
            assert torch.equal(found[device], source[layer][device])


def test_a_state_is_a_page_of_one_row() -> None:
    states = [torch.randn(ROWS, 2, WIDTH) for _ in range(LAYERS)]
    host = torch.zeros(PAGES, LAYERS, 1, 2, WIDTH)
    gather_pages(states, [host], torch.tensor([4]), torch.tensor([2]), 1)
    back = torch.zeros(ROWS, 2, WIDTH)
    scatter_pages([host], [back], torch.tensor([2]), torch.tensor([9]), 1, 1)
    assert torch.equal(back[9], states[1][4])


def test_memory_is_never_pinned() -> None:
    assert without_pinning(1, pin_memory=True, x=2) == ((1,), {"pin_memory": False, "x": 2})
