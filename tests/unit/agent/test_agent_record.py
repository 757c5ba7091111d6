from dataclasses import replace

from prfaas.config import EngineSection, NodeConfig, NodeSection, SecurityMode, SecuritySection
from prfaas.records import NodeRecord, Role
from prfaas_agent.engine import Engine
from prfaas_agent.model_facts import ModelFacts
from prfaas_agent.process import ProcessId
from prfaas_agent.record import node_record

ENGINE = Engine(ProcessId(7, 8), "s1", (), 5.0)
INFO = {
    "context_length": 4096,
    "max_total_num_tokens": 16384,
    "chunked_prefill_size": 512,
    "page_size": 16,
    "max_running_requests": 8,
}


def config(role: Role) -> NodeConfig:
    section = EngineSection("/models/tiny", device="cpu", bootstrap_port=30100)
    node = NodeSection("a-x-0", role, "a", host="10.0.0.1", port=30000)
    return NodeConfig(node=node, engine=section)


def test_a_prefill_record_says_how_to_reach_and_fill_it() -> None:
    record = node_record(config(Role.PREFILL), ENGINE, ModelFacts(8192, stateful=True), INFO)
    assert (record.url, record.session) == ("http://10.0.0.1:30000", "s1")
    assert (record.bootstrap_host, record.bootstrap_port) == ("10.0.0.1", 30100)
    assert (record.context_tokens, record.page_tokens) == (4096, 16)
    assert (record.stateful, record.checkpoint_tokens) == (True, 512)
    assert record.max_running_requests == 8


def test_a_decode_record_has_no_bootstrap() -> None:
    record = node_record(config(Role.DECODE), ENGINE, ModelFacts(8192, stateful=False), INFO)
    assert (record.bootstrap_host, record.bootstrap_port) == ("", 0)
    assert (record.stateful, record.checkpoint_tokens) == (False, 0)


def test_the_tightest_context_wins_and_a_silent_engine_gets_safe_values() -> None:
    small_pool = node_record(
        config(Role.DECODE), ENGINE, ModelFacts(8192, stateful=True), {"max_total_num_tokens": 100}
    )
    assert small_pool.context_tokens == 100
    silent = node_record(config(Role.DECODE), ENGINE, ModelFacts(2048, stateful=True), {})
    assert (silent.context_tokens, silent.page_tokens, silent.checkpoint_tokens) == (2048, 1, 0)


def test_a_record_says_where_its_agent_can_be_asked() -> None:
    plain = config(Role.DECODE)
    assert node_record(plain, ENGINE, ModelFacts(8192, stateful=False), INFO).agent_url == ""
    on_port = replace(plain, node=replace(plain.node, agent_port=31000))
    record = node_record(on_port, ENGINE, ModelFacts(8192, stateful=False), INFO)
    assert record.agent_url == "http://10.0.0.1:31000"
    secured = replace(on_port, security=SecuritySection(SecurityMode.MTLS))
    record = node_record(secured, ENGINE, ModelFacts(8192, stateful=False), INFO)
    assert record.agent_url == "https://10.0.0.1:31000"


def test_records_of_an_older_version_have_no_agent_to_ask() -> None:
    old = '{"name": "n", "role": "prefill", "region": "a", "url": "http://x", "session": "s"}'
    assert NodeRecord.from_json(old).agent_url == ""
