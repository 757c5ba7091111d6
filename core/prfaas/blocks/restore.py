"""Building the index anew from entries that another life of the pool wrote."""

from prfaas.blocks.block_layout import KEY_BYTES
from prfaas.blocks.chain_tree import ChainTree
from prfaas.blocks.entry import Entry, Run, State, split_keys
from prfaas.blocks.free_list import Category, FreeList


class Restoring:
    """Adds entries to an empty tree and takes their blocks. Call `add` in order of their oids.

    `kept` are those that are in the tree now; `lost` the others.
    """

    def __init__(self, tree: ChainTree, blocks: FreeList) -> None:
        self.kept: list[Entry] = []
        self.lost: list[Entry] = []
        self._tree = tree
        self._blocks = blocks
        self._run_of: dict[bytes, Run] = {}

    def add(self, entry: Entry, parent_key: bytes) -> None:
        """Add an entry; `parent_key` names the page before its first, empty at a chain's start."""
        kept = self._claim(entry) and self._link(entry, parent_key)
        (self.kept if kept else self.lost).append(entry)

    def _claim(self, entry: Entry) -> bool:
        try:
            self._blocks.claim(Category.PREFIX, entry.blocks)
        except ValueError:
            return False
        return True

    def _link(self, entry: Entry, parent_key: bytes) -> bool:
        if isinstance(entry, State):
            run = self._run_of.get(entry.keys[-KEY_BYTES:])
            fits = run is not None and run.first < entry.end <= run.end
            linked = run is not None and fits and self._tree.add_state(entry, run)
        else:
            assert isinstance(entry, Run)
            linked = self._link_run(entry, parent_key)
        if not linked:
            self._blocks.give_back(entry.blocks)
        return linked

    def _link_run(self, run: Run, parent_key: bytes) -> bool:
        parent = self._run_of.get(parent_key)
        is_start = not run.first and not parent_key
        if run.keys[:KEY_BYTES] in self._run_of or not (is_start or _continues(run, parent)):
            return False
        run.parent = parent
        self._tree.add_run(run)
        for key in split_keys(run.keys):
            self._run_of.setdefault(key, run)
        return True


def _continues(run: Run, parent: Run | None) -> bool:
    return parent is not None and parent.first < run.first <= parent.end
