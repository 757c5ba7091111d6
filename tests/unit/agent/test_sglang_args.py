import json
from dataclasses import replace

import pytest

from prfaas.config import EngineSection, NodeConfig, NodeSection
from prfaas.records import Role
from prfaas.transfer_section import TransferSection
from prfaas_agent.model_facts import ModelFacts
from prfaas_agent.sglang_args import engine_arguments, engine_environment, plain_arguments

HYBRID = ModelFacts(context_tokens=8192, stateful=True)
DENSE = ModelFacts(context_tokens=2048, stateful=False)
NODE_ROLES = (Role.PREFILL, Role.DECODE)


def node(role: Role, **engine: object) -> NodeConfig:
    section = EngineSection(model_path="/models/tiny", device="cpu")
    section = replace(section, bootstrap_port=30100 if role is Role.PREFILL else 0)
    section = replace(section, **engine)
    return NodeConfig(
        node=NodeSection(f"b-{role}-0", role, "b", host="10.0.0.2", port=30001, state_dir="/s"),
        engine=section,
        transfer=TransferSection(lanes=2),
    )


def value_of(arguments: list[str], option: str) -> str:
    """The last one wins, as in SGLang's parser."""
    positions = [i for i, argument in enumerate(arguments) if argument == option]
    return arguments[positions[-1] + 1]


def test_a_prefill_engine_has_a_bootstrap_port_and_no_retraction_backup() -> None:
    arguments = engine_arguments(node(Role.PREFILL), HYBRID)
    assert value_of(arguments, "--disaggregation-mode") == "prefill"
    assert value_of(arguments, "--disaggregation-transfer-backend") == "prfaas"
    assert value_of(arguments, "--disaggregation-bootstrap-port") == "30100"
    assert "--disaggregation-decode-retraction-backup" not in arguments
    assert value_of(arguments, "--host") == "10.0.0.2"
    assert value_of(arguments, "--served-model-name") == "tiny"


def test_a_decode_engine_on_cpu_backs_retraction_up_as_cpu_tensors() -> None:
    arguments = engine_arguments(node(Role.DECODE), HYBRID)
    assert value_of(arguments, "--disaggregation-decode-retraction-backup") == "cpu_tensor"
    assert "--disaggregation-bootstrap-port" not in arguments


def test_an_engine_that_may_change_its_role_has_the_arguments_of_both() -> None:
    switchable = {"role_switch": True, "decode_cache": True, "bootstrap_port": 30105}
    roles = [engine_arguments(node(role, **switchable), HYBRID) for role in NODE_ROLES]
    differ = {(one, two) for one, two in zip(*roles, strict=True) if one != two}
    assert differ == {("prefill", "decode")}
    assert value_of(roles[1], "--disaggregation-bootstrap-port") == "30105"
    assert {"--enable-pd-role-switch", "--disaggregation-decode-enable-radix-cache"} < set(roles[0])


def test_a_decode_cache_is_asked_for() -> None:
    option = "--disaggregation-decode-enable-radix-cache"
    assert option in engine_arguments(node(Role.DECODE, decode_cache=True), DENSE)
    assert option not in engine_arguments(node(Role.DECODE), DENSE)


def test_cache_events_are_published_where_asked_for() -> None:
    silent, telling = node(Role.PREFILL), node(Role.PREFILL, cache_events=True)
    assert "--kv-events-config" not in engine_arguments(silent, DENSE)
    config = json.loads(value_of(engine_arguments(telling, DENSE), "--kv-events-config"))
    assert config == {"publisher": "prfaas"}
    assert "PRFAAS_EVENTS_SOCKET" not in engine_environment(silent, interface="lo")
    environment = engine_environment(telling, interface="lo")
    assert environment["PRFAAS_EVENTS_SOCKET"] == "/s/b-prefill-0.events.sock"


def test_only_hybrids_get_the_state_options() -> None:
    assert "--mamba-radix-cache-strategy" in engine_arguments(node(Role.DECODE), HYBRID)
    assert "--mamba-radix-cache-strategy" not in engine_arguments(node(Role.DECODE), DENSE)


@pytest.mark.parametrize(("facts", "expected"), [(HYBRID, "4096"), (DENSE, "2048")])
def test_the_context_is_the_smaller_of_ours_and_the_models(
    facts: ModelFacts, expected: str
) -> None:
    assert value_of(engine_arguments(node(Role.DECODE), facts), "--context-length") == expected


def test_extra_arguments_come_last_and_win() -> None:
    config = node(Role.DECODE, extra_args=("--dtype", "bfloat16"))
    assert value_of(engine_arguments(config, DENSE), "--dtype") == "bfloat16"


def test_a_gpu_engine_gets_no_cpu_options() -> None:
    arguments = engine_arguments(node(Role.DECODE, device="cuda"), HYBRID)
    assert value_of(arguments, "--device") == "cuda"
    assert not {"--attention-backend", "--disable-overlap-schedule", "--max-total-tokens"} & set(
        arguments
    )


def test_a_plain_server_shares_the_table_and_does_not_disaggregate() -> None:
    plain = plain_arguments(
        model_path="/models/tiny", model_id="tiny", host="127.0.0.1", port=30009, facts=HYBRID
    )
    assert not [argument for argument in plain if argument.startswith("--disaggregation")]
    assert "--mamba-ssm-dtype" in plain


def test_engines_of_one_namespace_never_share_a_rendezvous_port() -> None:
    ports = {
        value_of(
            plain_arguments(model_path="m", model_id="m", host="h", port=p, facts=DENSE),
            "--nccl-port",
        )
        for p in (30000, 30001, 30002, 2000)
    }
    assert ports == {"25000", "25001", "25002", "3000"}


def test_the_environment_tells_the_plugin_where_it_is() -> None:
    config = node(Role.PREFILL, env={"EXTRA": "1", "OMP_NUM_THREADS": "2"})
    environment = engine_environment(config, interface="wan")
    assert environment["PRFAAS_NODE"] == "b-prefill-0"
    assert environment["PRFAAS_STATS_SOCKET"] == "/s/b-prefill-0.stats.sock"
    assert json.loads(environment["PRFAAS_TRANSFER"])["lanes"] == 2
    assert environment["SGLANG_HOST_IP"] == "10.0.0.2"
    assert environment["GLOO_SOCKET_IFNAME"] == "wan"
    assert (environment["EXTRA"], environment["OMP_NUM_THREADS"]) == ("1", "2")


def test_a_gpu_engine_is_not_told_to_use_the_cpu() -> None:
    environment = engine_environment(node(Role.DECODE, device="cuda"), interface="eth0")
    assert "SGLANG_USE_CPU_ENGINE" not in environment
    assert environment["SGLANG_HOST_IP"] == "10.0.0.2"
