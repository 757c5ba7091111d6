"""`deploy --topology FILE`, without a machine."""

from dataclasses import replace
from pathlib import Path

import pytest

from prfaas.errors import ConfigError
from prfaas_cli.app import run_command
from prfaas_cli.deploy_topology import chosen_regions, link_lines, read_topology
from prfaas_cli.failures import ProblemsError
from prfaas_cli.options import DeployOptions, check_options, topology_of

EXAMPLE = Path(__file__).parents[2] / "data/topologies/three-regions.toml"
OPTIONS = DeployOptions(
    ("us", "eu"), "/m", 8080, 512, "100gbit", "20ms", "float32", (), topology=EXAMPLE.read_text()
)


def test_the_file_says_what_the_links_are() -> None:
    topology = topology_of("dev", OPTIONS)
    assert topology.deployment == "dev"
    assert topology.way("us", "eu").spec.rate_bits_per_s == 10**10
    assert topology.regions == ("us", "eu", "asia")
    check_options("dev", OPTIONS, timeout_s=60.0)


def test_twins_shrink_and_stretch_links_and_schedules() -> None:
    real = topology_of("dev", OPTIONS).way("us", "eu")
    twins = replace(OPTIONS, engine="twin", scale=1000.0, dilation=2.0)
    scaled = topology_of("dev", twins).way("us", "eu")
    assert scaled.spec.rate_bits_per_s == real.spec.rate_bits_per_s / 2000
    assert scaled.spec.delay_s == 2 * real.spec.delay_s
    assert scaled.spec.jitter_s == 2 * real.spec.jitter_s
    assert scaled.spec.burst_loss == real.spec.burst_loss
    assert scaled.schedule is not None
    assert scaled.schedule.steps[0].at_s == 1200


def test_regions_are_those_asked_for_or_the_first_two() -> None:
    assert chosen_regions(None, OPTIONS.topology) == ("us", "eu")
    assert chosen_regions("asia, us", OPTIONS.topology) == ("asia", "us")
    with pytest.raises(ConfigError, match="--regions: give two names"):
        chosen_regions(None, "")
    with pytest.raises(ProblemsError, match="'mars' is not in --topology; allowed: us, eu, asia"):
        check_options("dev", replace(OPTIONS, regions=("us", "mars")), timeout_s=60.0)


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "sites.toml"
    path.write_text("[regions.a]")
    with pytest.raises(ConfigError, match=r"sites\.toml: .*allowed: two"):
        read_topology(path)
    assert read_topology(EXAMPLE) == OPTIONS.topology
    assert read_topology(None) == ""


def test_a_changed_file_is_another_deployment() -> None:
    other = replace(OPTIONS, topology=OPTIONS.topology + "# changed")
    assert OPTIONS.differences(other) == ["--topology: another file -> another file"]
    assert DeployOptions.from_json(OPTIONS.to_json()) == OPTIONS


def test_the_plan_tells_every_way() -> None:
    lines = list(link_lines("dev", OPTIONS))
    assert len(lines) == 6
    assert lines[0].startswith("link us -> eu: 10gbit, 45ms one way ±1ms pareto, 0.4975% loss")
    assert lines[0].endswith("(configured), 1 changes on schedule")
    plain = replace(OPTIONS, topology="")
    assert list(link_lines("dev", plain)) == ["link: 100gbit, 20ms round trip (configured)"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topology", str(EXAMPLE), "--link-rtt", "5ms"], "--topology: says what the links are"),
        (["--topology", "/no/such.toml"], "/no/such.toml: No such file"),
        ([], "--regions: give two names"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["deploy", *arguments], as_json=False) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
