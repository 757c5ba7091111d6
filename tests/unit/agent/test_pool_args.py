import json
from dataclasses import replace

import pytest
from test_sglang_args import DENSE, node, value_of

from prfaas.config import parse_node_config, render_node_config
from prfaas.errors import ConfigError
from prfaas.pool_section import PoolSection
from prfaas.records import Role
from prfaas_agent.sglang_args import engine_arguments


def test_a_node_with_a_pool_stores_prefixes_there() -> None:
    config = replace(node(Role.PREFILL), pool=PoolSection("/s/pool.sock", prefetch_tokens=99))
    arguments = engine_arguments(config, DENSE)
    assert "--enable-hierarchical-cache" in arguments
    storage = json.loads(value_of(arguments, "--hicache-storage-backend-extra-config"))
    assert storage["socket"] == "/s/pool.sock"
    assert storage["model"] == "tiny"
    assert storage["prefetch_threshold"] == 99
    assert storage["interface_v1"]
    assert storage["hicache_storage_pass_prefix_keys"]


def test_a_node_without_one_has_no_host_cache() -> None:
    assert not [
        item for item in engine_arguments(node(Role.PREFILL), DENSE) if "hi" + "cache" in item
    ]


@pytest.mark.parametrize(
    ("role", "engine", "text"),
    [
        (Role.DECODE, {}, "only a prefill node"),
        (Role.PREFILL, {"role_switch": True, "decode_cache": True}, "role_switch"),
    ],
)
def test_nodes_that_cannot_use_a_pool_are_refused(
    role: Role, engine: dict[str, bool], text: str
) -> None:
    config = replace(node(role, **engine), pool=PoolSection("/s/pool.sock"))
    with pytest.raises(ConfigError, match=text):
        parse_node_config(render_node_config(config), source="x")


@pytest.mark.parametrize(("key", "value"), [("prefetch_tokens", 0), ("host_ratio", 1.0)])
def test_a_number_out_of_range_is_named(key: str, value: float) -> None:
    pool = replace(PoolSection("/s/pool.sock"), **{key: value})
    config = replace(node(Role.PREFILL), pool=pool)
    with pytest.raises(ConfigError, match=f"pool.{key}"):
        parse_node_config(render_node_config(config), source="x")
