"""With TLS on, others reach an engine through its agent only."""

import json
from dataclasses import replace
from pathlib import Path

from test_agent_record import ENGINE, INFO, config

from prfaas.config import SecurityMode, SecuritySection
from prfaas.records import Role
from prfaas_agent.model_facts import ModelFacts
from prfaas_agent.record import node_record, own_url
from prfaas_agent.sglang_args import engine_arguments, engine_environment

FACTS = ModelFacts(8192, stateful=True)
PLAIN = config(Role.PREFILL)
SECTION = SecuritySection(SecurityMode.MTLS, "c/ca.crt", "/c/n.crt", "/c/n.key")
SECURED = replace(PLAIN, security=SECTION)


def host_of(arguments: list[str]) -> str:
    return arguments[arguments.index("--host") + 1]


def test_the_engine_listens_on_loopback_and_others_are_told_https() -> None:
    assert host_of(engine_arguments(PLAIN, FACTS)) == "10.0.0.1"
    assert host_of(engine_arguments(SECURED, FACTS)) == "127.0.0.1"
    record = node_record(SECURED, ENGINE, FACTS, INFO)
    assert record.url == "https://10.0.0.1:30000"
    assert (record.bootstrap_host, record.bootstrap_port) == ("10.0.0.1", 30100)
    assert own_url(SECURED) == "http://127.0.0.1:30000"
    assert own_url(PLAIN) == "http://10.0.0.1:30000"


def test_the_engine_is_told_who_it_is_and_where_its_files_are() -> None:
    environment = engine_environment(SECURED, interface="eth0")
    assert environment["PRFAAS_IDENTITY"] == "prfaas://default/a/a-x-0"
    security = json.loads(environment["PRFAAS_SECURITY"])
    assert security["ca"] == f"{Path.cwd()}/c/ca.crt"  # the engine works elsewhere
    assert (security["mode"], security["cert"], security["secret_file"]) == ("mtls", "/c/n.crt", "")
    assert environment["SGLANG_HOST_IP"] == "10.0.0.1"  # the lanes' address
    assert environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert engine_environment(PLAIN, interface="eth0")["GLOO_SOCKET_IFNAME"] == "eth0"
