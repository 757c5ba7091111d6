"""What `simulate` takes as text: every bad value is refused in one line that names its option."""

import math
from dataclasses import replace

import pytest

from prfaas.errors import ConfigError
from prfaas.planning.paper import paper_case
from prfaas.sim.policies.contender import CONTENDERS, DeploymentSettings, make_contender
from prfaas.sim.scenario import Fault, FaultKind
from prfaas.throughput import Expectation
from prfaas.workload import Deterministic, Diurnal, GammaBursts, OnOff, Poisson
from prfaas_cli.simulation_options import (
    ArrivalSpec,
    check_targets,
    missed_by,
    parse_fault,
    positive,
    replay_command,
    targets_of,
)

DEPLOYMENTS = [
    make_contender(name, paper_case(), DeploymentSettings()).deployment
    for name in ("threshold", "homogeneous")
]


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        ("poisson", Poisson(2.0)),
        ("deterministic", Deterministic(2.0)),
        ("gamma:3", GammaBursts(2.0, 3.0)),
        ("onoff:30,120,2", OnOff(2.0, 30.0, 120.0, 2.0)),
        ("diurnal:3600,0.5", Diurnal(2.0, 3600.0, 0.5)),
    ],
)
def test_arrivals(text: str, arrivals: object) -> None:
    assert ArrivalSpec.parse(text).at(2.0) == arrivals


@pytest.mark.parametrize(
    "text",
    ["", "weibull", "gamma", "gamma:", "gamma:x", "gamma:nan", "gamma:1,2", "poisson:2",
     "onoff:30,120", "diurnal:inf,0.5"],
)  # fmt: skip
def test_arrivals_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--arrivals "):
        ArrivalSpec.parse(text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("gamma:0", "cv"),
        ("gamma:-3", "cv"),
        ("onoff:30,120,9", "burst_factor"),
        ("onoff:0,120,1", "on_s"),
        ("diurnal:60,1.5", "amplitude"),
    ],
)
def test_arrivals_that_cannot_be_are_refused_with_the_field(text: str, field: str) -> None:
    with pytest.raises(ConfigError, match=f"^--arrivals '{text}': {field}"):
        ArrivalSpec.parse(text).at(2.0)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill:pd-prefill-0@600-900", Fault(600, 900, FaultKind.KILL, "pd-prefill-0")),
        ("kill:pd-prefill-0@600", Fault(600, math.inf, FaultKind.KILL, "pd-prefill-0")),
        ("slow:pd-decode-1=3@0-9.5", Fault(0, 9.5, FaultKind.SLOW, "pd-decode-1", 3.0)),
        ("link:prfaas=0@5-6", Fault(5, 6, FaultKind.LINK_RATE, "prfaas", 0.0)),
    ],
)
def test_faults(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    "text",
    ["", "kill", "kill:pd-prefill-0", "kill:pd-prefill-0=2@1-2", "slow:x@1-2", "slow:x=0@1-2",
     "slow:x=a@1-2", "link:x=-1@1-2", "link:x=nan@1-2", "link:x=2@1-2", "kill:x@9-1",
     "kill:x@nan-1", "burn:x@1-2"],
)  # fmt: skip
def test_faults_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--fault "):
        parse_fault(text)


def test_a_fault_needs_one_deployment_that_it_meets() -> None:
    assert {"pd-prefill-2", "pd-decode-4", "prfaas-prefill-3", "prfaas"} <= targets_of(
        DEPLOYMENTS[0]
    )
    only_homogeneous = parse_fault("kill:pd-prefill-8@1-2")
    check_targets([only_homogeneous, parse_fault("link:prfaas=0@1-2")], DEPLOYMENTS)
    with pytest.raises(ConfigError, match="'pd-prefill-8': no such node"):
        check_targets([only_homogeneous], DEPLOYMENTS[:1])
    assert missed_by([only_homogeneous], DEPLOYMENTS[0]) == ["pd-prefill-8"]
    assert not missed_by([parse_fault("kill:pd-prefill-0@1-2")], DEPLOYMENTS[0])


def test_what_a_fault_may_meet_is_named_by_its_kind() -> None:
    with pytest.raises(ConfigError, match=r"'pd-decode-0': no such cluster: allowed: prfaas$"):
        check_targets([parse_fault("link:pd-decode-0=0.5@1-2")], DEPLOYMENTS)
    nodes = "allowed: pd-decode-0 to 4, pd-prefill-0 to 2, prfaas-prefill-0 to 3$"
    with pytest.raises(ConfigError, match=f"'prfaas': no such node: {nodes}"):
        check_targets([parse_fault("kill:prfaas@1-2")], DEPLOYMENTS[:1])


def test_a_limit_of_cost_holds_for_every_contender() -> None:
    case = paper_case()
    limited = replace(case, constraints=replace(case.constraints, max_cost_per_hour=9.0))
    prices = case.site.prices
    for name in CONTENDERS:
        made = make_contender(name, limited, DeploymentSettings()).deployment
        cost = (made.pd.prefill + made.pd.decode) * prices[made.pd.profile.hardware]
        cost += sum(r.instances * prices[r.profile.hardware] for r in made.remotes)
        assert 0 < cost <= 9.0, name
    cheap = replace(case, constraints=replace(case.constraints, max_cost_per_hour=1.0))
    with pytest.raises(ConfigError, match=r"^max_cost_per_hour = 1: buys 1 of pd"):
        make_contender("homogeneous", cheap, DeploymentSettings())


def test_plans_are_by_the_expectation_that_is_asked_for() -> None:
    mean = DeploymentSettings(expectation=Expectation.MEAN_LENGTH)
    notes = [
        make_contender("threshold", paper_case(), s).note for s in (DeploymentSettings(), mean)
    ]
    assert notes == ["t = 19,800, N_p/N_d = 3/5", "t = 19,600, N_p/N_d = 3/5"]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_numbers_that_must_be_positive(value: float) -> None:
    with pytest.raises(ConfigError, match=r"^--rate "):
        positive(value, "--rate")


def test_the_command_to_replay_quotes_what_it_must() -> None:
    options = {
        "--case": "my site.toml",
        "--load": None,
        "--fault": ["kill:x@1-2"],
        "--own-caches": True,
    }
    assert replay_command(options) == (
        "prfaasctl simulate --case 'my site.toml' --fault kill:x@1-2 --own-caches"
    )
