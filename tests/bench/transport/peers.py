"""Other transfer libraries, where pip has them: rows that say so where it has not."""

import importlib.util

from rows import Rows

MODULES = {"Mooncake TCP": "mooncake", "NIXL": "nixl"}


def say_what_is_missing(rows: Rows) -> None:
    """Add a row per library; they are measured by hand so far (see docs/benchmarks.md)."""
    for name, module in MODULES.items():
        found = importlib.util.find_spec(module) is not None
        text = "installed, no driver for it here" if found else "skipped: not installed"
        rows.add("peers", name, text, int(found), "1")
