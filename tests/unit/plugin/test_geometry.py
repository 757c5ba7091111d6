from enum import StrEnum
from types import SimpleNamespace

from prfaas.transfer.layout import Entry
from prfaas_plugin.geometry import layout_of, pointers_of


class StateType(StrEnum):
    MAMBA = "mamba"
    SWA = "swa"


def kv_args(**changes: object) -> SimpleNamespace:
    values: dict[str, object] = {
        "kv_data_ptrs": [100, 200],
        "kv_data_lens": [640, 640],
        "kv_item_lens": [64, 64],
        "state_types": [StateType.MAMBA, StateType.SWA],
        "state_data_ptrs": [[300, 400], [500]],
        "state_data_lens": [[90, 0], [80]],
        "state_item_lens": [[30, 0], [16]],
        "aux_data_ptrs": [600],
        "aux_data_lens": [48],
        "aux_item_lens": [24],
    }
    return SimpleNamespace(**(values | changes))


def test_every_component_becomes_a_group_and_empty_tensors_are_left_out() -> None:
    layout = layout_of(kv_args())
    assert {group.name: group.entries for group in layout.groups} == {
        "kv": (Entry(64, 10), Entry(64, 10)),
        "state.0.mamba": (Entry(30, 3),),
        "state.1.swa": (Entry(16, 5),),
        "aux": (Entry(24, 2),),
    }
    assert pointers_of(kv_args()) == {
        "kv": [100, 200],
        "state.0.mamba": [300],
        "state.1.swa": [500],
        "aux": [600],
    }


def test_a_component_that_holds_nothing_on_this_rank_is_no_group() -> None:
    layout = layout_of(kv_args(state_item_lens=[[0, 0], [16]]))
    assert [group.name for group in layout.groups] == ["kv", "state.1.swa", "aux"]


def test_layouts_of_different_state_sizes_differ() -> None:
    assert (
        layout_of(kv_args()).digest() != layout_of(kv_args(state_item_lens=[[30, 0], [8]])).digest()
    )
    assert layout_of(kv_args()).digest() == layout_of(kv_args(kv_data_lens=[128, 128])).digest()
