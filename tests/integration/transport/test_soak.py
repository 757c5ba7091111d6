"""A short soak of every mode; `make soak` runs longer ones, with other seeds."""

from pathlib import Path

import pytest
from soak import MODES, run

SECONDS = 3.0
SEED = 1


@pytest.mark.parametrize("mode", MODES)
def test_whatever_happens_rooms_end_right_or_with_a_reason(mode: str, tmp_path: Path) -> None:
    result = run(mode, SECONDS, SEED, tmp_path)
    assert result.problems == [], f"faults {result.digest}"
    assert result.ends["received"] > 10
    assert sum(result.faults.values()) > 5
