import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.config import (
    EngineSection,
    GatewaySection,
    NodeConfig,
    NodeSection,
    SecurityMode,
    SecuritySection,
    parse_node_config,
    render_node_config,
)
from prfaas.errors import ConfigError
from prfaas.records import NodeRecord, Role, RoutingPolicy

PREFILL = """
[node]
name = "a-prefill-0"
role = "prefill"
region = "a"
[engine]
model_path = "/models/m"
bootstrap_port = 30100
"""

text = st.text(st.characters(exclude_categories=("Cc", "Cs")))


names = st.from_regex(r"[a-z0-9-]{1,40}", fullmatch=True)


@given(names, text, st.dictionaries(text, text), st.lists(text))
def test_what_is_rendered_is_read_back(
    name: str, path: str, env: dict[str, str], args: list[str]
) -> None:
    config = NodeConfig(
        node=NodeSection(name=name, role=Role.DECODE, region="b"),
        engine=EngineSection(model_path=path, env=env, extra_args=tuple(args)),
    )
    assert parse_node_config(render_node_config(config), source="f") == config


def test_a_gateway_round_trips() -> None:
    node = NodeSection(name="g", role=Role.GATEWAY, region="b")
    config = NodeConfig(node=node, gateway=GatewaySection(model_path="m", request_timeout_s=1.5))
    assert parse_node_config(render_node_config(config), source="f") == config


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('role = "prefill"', 'role = "prefil"', "node.role = 'prefil': allowed: gateway, prefill"),
        ('region = "a"', "region = 1", "node.region = 1: expected str"),
        ('name = "a-prefill-0"', 'name = "../x"', "node.name = '../x': allowed are 1 to 40"),
        ('name = "a-prefill-0"', f'name = "{"a" * 41}"', "allowed are 1 to 40 lowercase"),
        ('region = "a"', 'region = "A"', "node.region = 'A'"),
        ('region = "a"', 'region = "a"\ndeployment = "x/y"', "node.deployment = 'x/y'"),
        ("bootstrap_port = 30100", "", "engine.bootstrap_port: a prefill node needs one"),
        ("bootstrap_port = 30100", "bootstrap_port = 99999", "allowed is 0 to 65535"),
        ("bootstrap_port = 30100", "bootstrap_port = true", "expected int"),
        ("[engine]", "[engines]", "engines: unknown key; allowed: node, etcd, engine"),
        ('model_path = "/models/m"', "", "engine.model_path: missing"),
        ('name = "a-prefill-0"', "name = ", "not valid TOML"),
    ],
)
def test_a_bad_value_names_file_key_and_what_is_allowed(old: str, new: str, says: str) -> None:
    assert old in PREFILL
    with pytest.raises(ConfigError) as caught:
        parse_node_config(PREFILL.replace(old, new), source="node.toml")
    assert str(caught.value).startswith("node.toml: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("role_switch = true\nbootstrap_port = 1", "engine.decode_cache: engine.role_switch needs"),
        ("role_switch = true\ndecode_cache = true", "engine.bootstrap_port: engine.role_switch"),
        ("decode_cuda_graph_memory_gb = -1", "decode_cuda_graph_memory_gb = -1.0: allowed is 0"),
    ],
)
def test_an_engine_that_may_change_its_role_needs_what_both_roles_need(
    engine: str, says: str
) -> None:
    decode = PREFILL.replace('role = "prefill"', 'role = "decode"')
    with pytest.raises(ConfigError, match=says):
        parse_node_config(decode.replace("bootstrap_port = 30100", engine), source="f")


MTLS = '[security]\nmode = "mtls"\nca = "c"\ncert = "d"\nkey = "k"\n'


def test_security_round_trips() -> None:
    config = parse_node_config(PREFILL + MTLS, source="f")
    assert config.security == SecuritySection(SecurityMode.MTLS, "c", "d", "k")
    assert parse_node_config(render_node_config(config), source="f") == config
    assert parse_node_config(PREFILL, source="f").security.mode is SecurityMode.OFF


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ('[security]\nmode = "on"', "security.mode = 'on': allowed: off, secret, mtls"),
        ('[security]\nmode = "secret"', 'security.secret_file: missing; mode = "secret" needs it'),
        (MTLS.replace('ca = "c"', ""), 'security.ca: missing; mode = "mtls" needs it'),
        (MTLS.replace('key = "k"', ""), "security.key: missing"),
        ("[security]\nmax_lane_age_s = 0", "security.max_lane_age_s = 0.0: allowed is 1"),
        ('[transfer]\ndigests = "yes"', "transfer.digests = 'yes': allowed: auto, on, off"),
        ('[transfer]\ncompression = "on"', "transfer.compression = 'on': allowed: auto, off"),
        ('[transfer]\npipelining = "no"', "transfer.pipelining = 'no': allowed: layer, chunk"),
        ("[transfer]\nchunk_bytes = 100", "transfer.chunk_bytes = 100: allowed is 0 or 4096 to"),
        ('[transfer]\ncongestion_control = "B B"', "congestion_control = 'B B': allowed: auto, or"),
        ('[transfer]\nsource_hosts = ["eth0"]', "source_hosts: 'eth0': allowed are addresses of"),
        ("[transfer]\nlanes = 65", "transfer.lanes = 65: allowed is 0 to 64"),
        ('[transfer]\ncongestion_control = "-"', "congestion_control = '-': allowed: auto, or"),
        ('[transfer]\nsource_hosts = ["0.0.0.0"]', "source_hosts: '0.0.0.0': allowed are"),
        ('[transfer]\nsource_hosts = ["::"]', "source_hosts: '::': allowed are"),
        ('[transfer]\nsource_hosts = ["10.0.0.1", "224.0.0.1"]', "source_hosts: '224.0.0.1'"),
        ('[transfer]\nsource_hosts = ["ff02::1"]', "source_hosts: 'ff02::1'"),
        ('[transfer]\nsource_hosts = ["255.255.255.255"]', "source_hosts: '255.255.255.255'"),
        ('[transfer]\nsource_hosts = ["fe80::1%e\\u0000"]', "source_hosts: 'fe80::1%e\\x00'"),
        ('[transfer]\nlocal_backend = "mooncake"\n' + MTLS, "local_backend: mooncake knows no TLS"),
        ('[transfer]\nlocal_backend = "nixl"\n' + MTLS, "transfer.local_backend: nixl knows no"),
        ('[pool]\nsocket = ""', "pool.socket = '': allowed is a path of 1 to 107 bytes"),
        ('[pool]\nsocket = "/a\\u0000"', "pool.socket = '/a\\x00': allowed is a path"),
        (f'[pool]\nsocket = "/{"a" * 107}"', "allowed is a path of 1 to 107 bytes"),
    ],
)
def test_half_a_security_or_transfer_is_refused(section: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_node_config(PREFILL + section, source="node.toml")
    assert says in str(caught.value)


@pytest.mark.parametrize("backend", ["mooncake", "nixl"])
def test_a_twin_has_lanes_only(backend: str) -> None:
    section = f'[transfer]\nlocal_backend = "{backend}"\n'
    twin = PREFILL.replace("[engine]", '[engine]\nengine = "twin"')
    says = f"f: transfer.local_backend: {backend} is not for a twin; allowed: lanes"
    with pytest.raises(ConfigError, match=says):
        parse_node_config(twin + section, source="f")
    secret = '[security]\nmode = "secret"\nsecret_file = "s"\n'
    for more in (section, section + secret):
        assert parse_node_config(PREFILL + more, source="f").transfer.local_backend == backend


def test_addresses_of_this_machine_may_be_dialled_from() -> None:
    hosts = ("127.0.0.1", "10.0.0.1", "fe80::1%eth0.100", "2001:db8::1")
    section = f"[transfer]\nsource_hosts = {json.dumps(hosts)}"
    assert parse_node_config(PREFILL + section, source="f").transfer.source_hosts == hosts


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (f"start_timeout_s = 1{'0' * 400}", "engine.start_timeout_s: an integer beyond 64 bits"),
        (f"start_timeout_s = 1{'0' * 5000}", "not valid TOML: an integer beyond 64 bits"),
        (f"extra_args = [0x{'f' * 9000}]", "engine.extra_args: an integer beyond 64 bits"),
        (f"bootstrap_port = 0x{'f' * 17}", "engine.bootstrap_port: an integer beyond 64 bits"),
        (f"extra_args = {'[' * 3000}{']' * 3000}", "tables or lists are nested too deep"),
        (f"[{'a.' * 3000}a]", "tables or lists are nested too deep"),
        (f"[node{'.a' * 400}]", "node.a: unknown key"),
    ],
)
def test_numbers_and_nesting_without_end_are_one_line(section: str, says: str) -> None:
    text = PREFILL.replace("bootstrap_port = 30100", section)
    with pytest.raises(ConfigError) as caught:
        parse_node_config(text, source="node.toml")
    assert str(caught.value).startswith("node.toml: ")
    assert says in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_engine_role_needs_an_engine_section() -> None:
    with pytest.raises(ConfigError, match=r"a decode node needs a section \[engine\]"):
        parse_node_config('[node]\nname="d"\nrole="decode"\nregion="b"', source="f")


def test_records_round_trip_and_ignore_keys_of_newer_versions() -> None:
    record = NodeRecord(name="n", role=Role.PREFILL, region="a", url="http://x", session="s")
    assert NodeRecord.from_json(record.to_json()) == record
    assert NodeRecord.from_json(record.to_json()[:-1] + ', "new": 1}') == record
    assert RoutingPolicy.from_json(b'{"threshold_tokens": 7}').threshold_tokens == 7


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"name": "n", "role": "x"}', "\xff"])
def test_a_broken_record_is_a_config_error(value: str) -> None:
    with pytest.raises(ConfigError, match="NodeRecord"):
        NodeRecord.from_json(value)
