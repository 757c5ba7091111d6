from dataclasses import replace
from pathlib import Path

import pytest
from test_deploy_plan import OPTIONS

from prfaas.config import parse_node_config
from prfaas_cli.failures import ProblemsError
from prfaas_cli.options import check_options
from prfaas_cli.place import Place
from prfaas_cli.process_plan import plan_deployment

POOLED = replace(OPTIONS, pool_bytes=64 << 20)
PLACE = Place(Path("/state"), "dev")


def test_without_pools_nothing_is_started_for_them() -> None:
    made = plan_deployment(PLACE, OPTIONS, etcd="/bin/etcd", start_timeout_s=9.0)
    assert not [spec.name for spec in made.processes if "pool" in spec.name]
    assert not [config.node.name for config in made.nodes if config.pool]


def test_each_region_has_a_pool_that_its_prefills_use() -> None:
    made = plan_deployment(PLACE, POOLED, etcd="/bin/etcd", start_timeout_s=9.0)
    pools = {spec.name: spec.argv for spec in made.processes if "pool" in spec.name}
    assert list(pools) == ["west-pool-0", "east-pool-0"]
    assert pools["east-pool-0"][-2:] == ("--bytes", str(64 << 20))
    sockets = {config.node.name: config.pool.socket for config in made.nodes if config.pool}
    assert sockets == {
        "west-prefill-0": "/state/dev/west.pool.sock",
        "east-prefill-0": "/state/dev/east.pool.sock",
    }
    for node, socket in sockets.items():
        assert socket in pools[f"{node.split('-')[0]}-pool-0"]
        assert parse_node_config(made.config_texts()[node], source="x").pool is not None


def test_pools_end_after_those_who_use_them() -> None:
    made = plan_deployment(PLACE, POOLED, etcd="/bin/etcd", start_timeout_s=9.0)
    waves = {spec.name: spec.stop_wave for spec in made.processes}
    assert waves["west-pool-0"] > waves["west-prefill-0"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pool_bytes": 5}, "--pool-bytes 5"),
        ({"pool_bytes": 1 << 50}, "--pool-bytes"),
        ({"engine": "twin"}, "not with --engine twin"),
        ({"role_switch": True}, "not with --role-switch"),
    ],
)
def test_what_pools_cannot_do_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(ProblemsError, match=text):
        check_options("dev", replace(POOLED, **change), timeout_s=9.0)
