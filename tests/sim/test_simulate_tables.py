"""docs/simulation-tables.md is what its command makes: its frame always, some of its cells anew."""

from pathlib import Path

import pytest

from prfaas.sim.policies.contender import CONTENDERS
from prfaas_cli.simulation_tables import (
    ARRIVALS,
    COMMON,
    LOADS,
    OWN,
    SEEDS,
    Cell,
    Spread,
    cell,
    markdown,
    row,
)

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "docs" / "simulation-tables.md").read_text().splitlines()


def made_up(policy: str, arrivals: str, load: float, rate: str, unstable_seeds: int = 0) -> Cell:
    spread = Spread(1.0, 0.1)
    numbers = (load * 2, spread, spread, Spread(30.0, 4.0), 0.985, 0.25)
    return Cell(policy, arrivals, load, rate, *numbers, unstable_seeds=unstable_seeds)


def test_a_spread_is_the_mean_and_half_the_distance_of_the_extremes() -> None:
    assert str(Spread.of([1.0, 1.5, 3.5])) == "2.00 ±1.25"


def test_a_row_of_stable_and_unstable_cells() -> None:
    cells = [made_up("naive", "poisson", 0.8, OWN), made_up("naive", "poisson", 0.95, OWN, 2)]
    assert row(cells, "naive", "poisson", OWN) == (
        "| naive | 1.60 | 1.00 ±0.10 | 1.00 ±0.10 | 30.00 ±4.00 | 98%"
        " | 1.90 | unstable, +0.25 s/s |  |  | 98% |"
    )


def test_one_seed_of_three_does_not_make_a_cell_unstable() -> None:
    assert len(SEEDS) == 3
    assert made_up("naive", "poisson", 0.8, OWN, unstable_seeds=1).stable
    assert not made_up("naive", "poisson", 0.8, OWN, unstable_seeds=2).stable


def test_all_but_the_cells_is_as_the_command_makes_it() -> None:
    cells = [
        made_up(policy, arrivals, load, rate)
        for policy in CONTENDERS
        for arrivals in ARRIVALS
        for load in LOADS
        for rate in (OWN, COMMON)
    ]
    made = list(markdown(cells))
    frame = [line for line in made if " ±0.10 |" not in line]
    rows = len(made) - len(frame)
    assert rows == len(CONTENDERS) * len(ARRIVALS) * 2
    is_row = [line.startswith(tuple(f"| {name} | " for name in CONTENDERS)) for line in LINES]
    begin = LINES.index("")  # the contenders' own table has such lines too, and is of the frame
    tables = next(i for i, line in enumerate(LINES) if i > begin and line.startswith("## "))
    kept = [line for i, line in enumerate(LINES) if i < tables or not is_row[i]]
    assert kept == frame
    assert len(LINES) == len(made)


@pytest.mark.parametrize(
    ("policy", "arrivals"), [("prfaas", "poisson"), ("homogeneous", "gamma:3")]
)
@pytest.mark.timeout(300)
def test_cells_made_anew_are_those_of_the_file(policy: str, arrivals: str) -> None:
    load = LOADS[0]
    shown = cell(policy, arrivals, load, OWN).shown()
    heading = next(i for i, line in enumerate(LINES) if f"(`{arrivals}`)" in line)
    line = next(line for line in LINES[heading:] if line.startswith(f"| {policy} | "))
    assert tuple(part.strip() for part in line.split("|")[2 : 2 + len(shown)]) == shown
