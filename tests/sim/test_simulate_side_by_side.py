"""The contenders as a whole: what the equations promise, and replays that are exact."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prfaas.planning.paper import paper_case
from prfaas.sim.policies.contender import CONTENDERS
from prfaas_cli.simulation import Comparison, Question, Run, compare, contenders_of

ROOT = Path(__file__).parents[2]
QUESTION = Question(paper_case(), requests=3000)


def runs_at(load: float, requests: int = 3000) -> Iterator[Run]:
    question = replace(QUESTION, load=load, requests=requests)
    return compare(question, contenders_of(question, print), lambda name, share: None)


@pytest.fixture(scope="module")
def at_80() -> dict[str, Run]:
    return {run.contender.name: run for run in runs_at(0.8)}


def test_below_lambda_max_all_are_stable(at_80: dict[str, Run]) -> None:
    assert tuple(at_80) == CONTENDERS
    for name, run in at_80.items():
        assert run.summary.stable, name
        assert run.summary.throughput_per_s == pytest.approx(run.rate_per_s, rel=0.05), name


def test_above_lambda_max_none_is() -> None:
    for run in runs_at(1.3):
        assert not run.summary.stable, run.contender.name
        assert run.summary.throughput_per_s < 0.95 * run.rate_per_s, run.contender.name


@pytest.mark.parametrize(
    ("name", "table_s"), [("prfaas", 2.22), ("homogeneous", 4.44), ("naive", 1.74)]
)
def test_the_bare_prefill_is_that_of_table_6(
    at_80: dict[str, Run], name: str, table_s: float
) -> None:
    found = at_80[name].summary
    assert found.breakdown.prefill_s == pytest.approx(table_s, rel=0.04)
    assert found.ttft.mean > 1.2 * table_s  # and here is what the table leaves out


@pytest.mark.parametrize("name", ["prfaas", "homogeneous", "naive"])
def test_the_bottleneck_is_as_full_as_the_load_says(at_80: dict[str, Run], name: str) -> None:
    use = at_80[name].summary.utilisation
    assert max(use.prfaas_prefill, use.pd_prefill) == pytest.approx(0.8, abs=0.05)


def test_two_runs_agree_in_every_figure_of_every_request() -> None:
    first, again = (Comparison(QUESTION, tuple(runs_at(0.95, 1000))) for _ in range(2))
    assert [run.digest for run in first.runs] == [run.digest for run in again.runs]
    assert first.digest == again.digest


def test_make_sim_replays_its_seed() -> None:
    def printed(seed: int) -> str:
        command = ["make", "--silent", "sim", f"SEED={seed}", "SIM_REQUESTS=200"]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    first, again, other = printed(4), printed(4), printed(5)
    assert first == again
    assert first.splitlines()[-1].startswith("digest ")
    assert first.splitlines()[-1] != other.splitlines()[-1]
