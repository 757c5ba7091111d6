from dataclasses import replace
from pathlib import Path

import pytest

from prfaas.config import parse_node_config
from prfaas.errors import ConfigError
from prfaas.records import Role
from prfaas.transfer_section import Pipelining
from prfaas_cli.failures import ProblemsError
from prfaas_cli.options import DeployOptions, check_options, find_model
from prfaas_cli.place import Place
from prfaas_cli.process_plan import LISTEN_FD, DeployPlan, ProcessSpec, plan_deployment

OPTIONS = DeployOptions(
    regions=("west", "east"),
    model_path="/models/tiny",
    port=8080,
    threshold_tokens=512,
    link_rate="10gbit",
    link_rtt="30ms",
    dtype="float32",
    engine_args=(),
)
PLACE = Place(Path("/state"), "dev")


def plan(options: DeployOptions = OPTIONS) -> DeployPlan:
    return plan_deployment(PLACE, options, etcd="/bin/etcd", start_timeout_s=100.0)


def process(name: str) -> ProcessSpec:
    return next(spec for spec in plan().processes if spec.name == name)


def test_every_node_has_a_configuration_that_reads_back() -> None:
    made = plan()
    texts = made.config_texts()
    assert list(texts) == ["west-prefill-0", "east-prefill-0", "east-decode-0", "east-gateway-0"]
    for config in made.nodes:
        assert parse_node_config(texts[config.node.name], source="x") == config


def test_the_first_region_prefills_and_the_second_holds_the_rest() -> None:
    made = plan()
    regions = {config.node.name: config.node.region for config in made.nodes}
    assert regions == {
        "west-prefill-0": "west",
        "east-prefill-0": "east",
        "east-decode-0": "east",
        "east-gateway-0": "east",
    }
    east = made.topology.namespace("east")
    assert process("east-etcd-0").namespace == process("east-gateway-0").namespace == east
    assert process("west-prefill-0").namespace == made.topology.namespace("west")
    assert process("forkserver").namespace == process("link").namespace == ""


def test_of_many_regions_the_last_decodes_and_all_others_prefill() -> None:
    made = plan(replace(OPTIONS, regions=("us", "asia", "eu"), instances=(2, 1, 1, 2)))
    engines = [config.node for config in made.nodes if config.engine]
    assert [node.name for node in engines] == [
        *("us-prefill-0", "us-prefill-1", "asia-prefill-0", "eu-prefill-0"),
        *("eu-decode-0", "eu-decode-1"),
    ]
    assert len({node.port for node in engines}) == len(engines)
    home = made.topology.address("eu")
    assert {config.etcd.endpoints for config in made.nodes} == {(f"{home}:2379",)}
    assert made.nodes[-1].node.name == "eu-gateway-0"


def test_no_two_engines_share_a_port() -> None:
    engines = [config for config in plan().nodes if config.engine]
    ports = [config.node.port for config in engines]
    ports += [config.engine.bootstrap_port for config in engines if config.engine]
    used = [port for port in ports if port]
    assert len(used) == len(set(used)) == 5


def test_all_nodes_ask_the_one_etcd() -> None:
    made = plan()
    endpoint = f"{made.topology.address('east')}:2379"
    assert {config.etcd.endpoints for config in made.nodes} == {(endpoint,)}
    argv = process("east-etcd-0").argv
    assert f"http://{endpoint}" in argv
    assert argv[argv.index("--auto-compaction-retention") + 1] == "5m"


def test_the_gateway_inherits_its_socket_from_the_machine() -> None:
    assert process("east-gateway-0").listen == "127.0.0.1:8080"
    gateway = next(config for config in plan().nodes if config.node.role is Role.GATEWAY)
    assert gateway.gateway is not None
    assert gateway.gateway.listen_fd == LISTEN_FD
    assert gateway.gateway.threshold_tokens == 512


def test_engines_start_through_the_fork_server_with_the_options_given() -> None:
    options = replace(OPTIONS, dtype="bfloat16", engine_args=("--max-running-requests", "2"))
    engine = plan(options).nodes[0].engine
    assert engine is not None
    assert engine.fork_server == "/state/dev/fork.sock"
    assert engine.extra_args == ("--dtype", "bfloat16", "--max-running-requests", "2")
    assert engine.start_timeout_s == 100.0


def test_engines_pipeline_as_asked() -> None:
    made = plan(replace(OPTIONS, pipelining="chunk"))
    assert {n.transfer.pipelining for n in made.nodes if n.engine} == {Pipelining.CHUNK}
    assert plan().nodes[0].transfer.pipelining is Pipelining.LAYER
    with pytest.raises(ProblemsError, match="--pipelining no: allowed: layer, chunk"):
        check_options("dev", replace(OPTIONS, pipelining="no"), timeout_s=60.0)


def test_nodes_that_may_change_their_role_are_all_made_for_both() -> None:
    made = plan(replace(OPTIONS, role_switch=True, decode_cache=True))
    engines = [config.engine for config in made.nodes if config.engine]
    assert all(engine.role_switch and engine.decode_cache for engine in engines)
    assert len({engine.bootstrap_port for engine in engines} - {0}) == 3
    for text in made.config_texts().values():
        parse_node_config(text, source="f")


def test_specs_and_options_survive_their_files() -> None:
    for spec in plan().processes:
        assert ProcessSpec.from_json(spec.to_json()) == spec
    assert DeployOptions.from_json(OPTIONS.to_json()) == OPTIONS
    with pytest.raises(ConfigError, match="another version"):
        DeployOptions.from_json({"regions": ["a", "b"]})


def test_differences_name_the_option_and_both_values() -> None:
    other = replace(OPTIONS, port=9, engine_args=("--x",))
    assert OPTIONS.differences(other) == ["--port: 8080 -> 9", "--engine-arg: none -> --x"]
    assert OPTIONS.differences(OPTIONS) == []


def test_all_bad_options_are_listed_at_once() -> None:
    bad = replace(
        OPTIONS,
        regions=("a",),
        port=0,
        threshold_tokens=-1,
        dtype="int8",
        link_rate="fast",
    )
    with pytest.raises(ProblemsError) as caught:
        check_options("dev", bad, timeout_s=60.0)
    assert caught.value.exit_code == 2
    words = ["--regions", "--link-rate", "--port 0", "--threshold -1", "--dtype int8"]
    assert [word for word in words if word in str(caught.value)] == words
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    "regions",
    [("a",), ("a", "a"), tuple("abcdefghi"), ("a", "B"), ("a", ""), ("wan", "a"), ("a", "x/y")],
)
def test_bad_region_names_are_refused(regions: tuple[str, ...]) -> None:
    with pytest.raises(ProblemsError, match="regions"):
        check_options("dev", replace(OPTIONS, regions=regions), timeout_s=60.0)


@pytest.mark.parametrize("rtt", ["x", "-1ms", "20", "9999s"])
def test_a_bad_round_trip_is_refused_by_its_option_name(rtt: str) -> None:
    with pytest.raises(ProblemsError, match="--link-rtt"):
        check_options("dev", replace(OPTIONS, link_rtt=rtt), timeout_s=60.0)


def test_a_model_is_a_tiny_models_name_or_a_directory(tmp_path: Path) -> None:
    assert find_model("qwen3-next-tiny").endswith("/prfaas/models/qwen3-next-tiny")
    assert find_model(str(tmp_path)) == str(tmp_path)
    assert find_model("./some/where") == str(Path("some/where").resolve())


def test_a_killed_agent_has_time_to_come_back_before_its_lease_ends() -> None:
    assert {config.etcd.lease_ttl_s for config in plan().nodes} == {15}
