from typing import Any

from prfaas_plugin.pool_hooks import with_own_hashes


class Cache:
    """What the hook needs of SGLang's cache."""

    def __init__(self, own: Any) -> None:
        self.tree_core = self
        self._own = own

    def get_hash_values(self, node_id: int) -> Any:
        assert node_id == 7
        return self._own


def test_the_pages_of_the_node_itself_are_passed_too() -> None:
    ancestors = ["a", "b"]
    assert with_own_hashes(ancestors, Cache(["c", "d"]), 7) == ["a", "b", "c", "d"]
    assert ancestors == ["a", "b"]


def test_a_root_has_none() -> None:
    assert with_own_hashes([], Cache([]), 7) == []


def test_a_scheduler_outlives_whatever_the_hook_meets() -> None:
    assert with_own_hashes(["a"], Cache(None), 7) == ["a"]
    assert with_own_hashes(["a"], object(), 7) == ["a"]
