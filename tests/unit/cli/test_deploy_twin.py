"""Options of `deploy --engine twin` and `twin run`, without a machine."""

from dataclasses import replace

import pytest

from prfaas.config import EngineSection, NodeConfig, NodeSection
from prfaas.errors import ConfigError
from prfaas.records import Role
from prfaas.twin_section import EngineKind
from prfaas_cli.deploy_twin import default_threshold, parse_instances, twin_problems
from prfaas_cli.failures import ProblemsError
from prfaas_cli.options import DeployOptions, check_options, topology_of
from prfaas_cli.place import Place
from prfaas_cli.process_plan import engines_of, plan_deployment
from prfaas_cli.twin_fleet import numbered


def options(**changes: object) -> DeployOptions:
    values: dict[str, object] = {
        "regions": ("a", "b"),
        "model_path": "/m",
        "port": 8080,
        "threshold_tokens": 19_400,
        "link_rate": "100gbit",
        "link_rtt": "20ms",
        "dtype": "float32",
        "engine_args": (),
        "engine": "twin",
    }
    return DeployOptions(**values | changes)  # type: ignore[arg-type]


def test_the_papers_clusters_are_one_option(tmp_path: object) -> None:
    asked = options(instances=parse_instances("4,3,5", 2), scale=1000.0, dilation=2.0)
    check_options("t", asked, timeout_s=60)
    plan = plan_deployment(Place.of(tmp_path, "t"), asked, etcd="etcd", start_timeout_s=60)  # type: ignore[arg-type]
    engines = [config for config in plan.nodes if config.engine is not None]
    assert [config.node.name for config in engines] == [e.name for e in engines_of(asked)]
    assert len(engines) == 12
    ports = {config.node.port for config in engines}
    ports |= {config.engine.bootstrap_port for config in engines if config.engine}
    assert len(ports - {0}) == 12 + 7
    for config in engines:
        assert config.engine is not None
        assert config.twin is not None
        assert config.engine.engine is EngineKind.TWIN
        assert not config.engine.fork_server
        profile = "paper-1t-h200" if config.node.region == "a" else "paper-1t-h20"
        assert (config.twin.profile, config.twin.scale, config.twin.dilation) == (profile, 1000, 2)
    assert "forkserver" not in {spec.name for spec in plan.processes}


def test_the_link_shrinks_and_slows_down_with_the_twins() -> None:
    link = topology_of("t", options(scale=500.0, dilation=4.0)).link
    assert link.rate_bits_per_s == 100e9 / (500 * 4)
    assert link.rtt_s == pytest.approx(0.080)
    real = topology_of("t", options(engine="sglang", scale=500.0, dilation=4.0)).link
    assert (real.rate_bits_per_s, real.rtt_s) == (100e9, 0.020)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": "vllm"}, "--engine vllm: allowed: sglang, twin"),
        ({"profiles": ("paper-1t-h20",)}, "one for each region"),
        ({"profiles": ("paper-1t-h20", "nobody")}, "nobody"),
        ({"profiles": ("paper-1t-h20", "paper-1t-h200")}, "only prefills"),
        ({"profiles": ("paper-kimi-linear-h200", "paper-1t-h20")}, "caches"),
        ({"scale": 0.0}, "--scale 0"),
        ({"dilation": float("nan")}, "--dilation nan"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, object], said: str) -> None:
    assert any(said in problem for problem in twin_problems(options(**changes)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "--local-backend: mooncake is not for a twin; allowed: lanes"),
        ({"engine": "sglang", "security": "mtls"}, "--local-backend: mooncake knows no TLS"),
    ],
)
def test_a_local_backend_is_for_engines_without_tls(changes: dict[str, object], said: str) -> None:
    asked = options(local_backend="mooncake", **changes)
    with pytest.raises(ProblemsError, match=said):
        check_options("t", asked, timeout_s=60)
    check_options("t", replace(asked, engine="sglang", security="secret"), timeout_s=60)


def test_a_scale_whose_link_cannot_be_emulated_is_refused() -> None:
    with pytest.raises(ProblemsError, match="rate"):
        check_options("t", options(scale=1e6, dilation=1e3), timeout_s=60)


@pytest.mark.parametrize("text", ["", "1", "1,2", "0,1,1", "1,1,65", "a,b,c", "1,1,1,1"])
def test_instances_of_two_regions_are_three_numbers(text: str) -> None:
    with pytest.raises(ConfigError, match="--instances"):
        parse_instances(text, 2)


def test_the_threshold_follows_the_engine() -> None:
    assert (default_threshold("sglang"), default_threshold("twin")) == (512, 19_400)


def base(port: int = 20_000, bootstrap_port: int = 21_000) -> NodeConfig:
    engine = EngineSection("/m", engine=EngineKind.TWIN, bootstrap_port=bootstrap_port)
    return NodeConfig(NodeSection("p", Role.PREFILL, "a", port=port), engine=engine)


def test_a_fleet_counts_names_and_ports_up() -> None:
    twins = list(numbered(base(), 300))
    assert [twins[0].node.name, twins[299].node.name] == ["p-0", "p-299"]
    ports = [twin.node.port for twin in twins]
    ports += [twin.engine.bootstrap_port for twin in twins if twin.engine]
    assert len(set(ports)) == 600
    assert list(numbered(base(), 1)) == [base()]


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (base(), 0),
        (base(), 1001),
        (base(bootstrap_port=20_010), 11),
        (base(65_530), 10),
        (replace(base(), node=replace(base().node, name="p" * 38)), 11),
    ],
)
def test_a_fleet_whose_ports_would_meet_or_names_be_too_long_is_refused(
    config: NodeConfig, count: int
) -> None:
    with pytest.raises(ConfigError, match="--count"):
        list(numbered(config, count))
