"""Which items of which entries hold the pages of a chain, and which pages have none yet."""

from dataclasses import dataclass

from prfaas.blocks.chain_tree import covered_lengths
from prfaas.blocks.entry import Entry, Path, State, is_run


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` items of an entry from its item `offset` on."""

    entry: Entry
    offset: int
    count: int


def pieces(path: Path, group: str, first: int) -> list[Piece]:
    """Return what holds the pages from `first` on, up to the first that is missing."""
    return _run_pieces(path, first) if is_run(group) else _state_pieces(path, group, first)


def missing_spans(
    path: Path, group: str, first: int, end: int, *, max_items: int
) -> list[tuple[int, int]]:
    """Return the (start, end) of entries to write so that pages `first` to `end` are stored.

    KV is cut from its first page on, states from their last: where a state ends, it can be used.
    """
    if is_run(group):
        starts = range(max(first, path.pages), end, max_items)
        return [(start, min(end, start + max_items)) for start in starts]
    have = covered_lengths(path, group, 1)
    spans = []
    while end > first:
        start = max(first, end - max_items)
        if not have.issuperset(range(start + 1, end + 1)):
            spans.append((start, end))
        end = start
    return spans[::-1]


def _run_pieces(path: Path, first: int) -> list[Piece]:
    found = []
    for run, used in path.runs:
        offset = max(0, first - run.first)
        if offset < used:
            found.append(Piece(run, offset, used - offset))
    return found


def _state_pieces(path: Path, group: str, first: int) -> list[Piece]:
    holder: dict[int, State] = {}
    for state in path.states(group):
        holder.update(dict.fromkeys(range(max(first, state.first), state.end), state))
    found: list[Piece] = []
    position = first
    while position in holder:
        state = holder[position]
        end = position
        while holder.get(end) is state:
            end += 1
        found.append(Piece(state, position - state.first, end - position))
        position = end
    return found
