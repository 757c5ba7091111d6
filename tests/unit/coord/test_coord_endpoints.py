import pytest

from prfaas.errors import ConfigError
from prfaas_coord.endpoints import grpc_target
from prfaas_coord.ranges import prefix_end


@pytest.mark.parametrize(
    ("endpoints", "target"),
    [
        (["127.0.0.1:2379"], "ipv4:127.0.0.1:2379"),
        (["10.0.0.1:1", "10.0.0.2:2"], "ipv4:10.0.0.1:1,10.0.0.2:2"),
        (["[::1]:2379", "[fd00::2]:2379"], "ipv6:[::1]:2379,[fd00::2]:2379"),
        (["etcd.example:2379"], "dns:///etcd.example:2379"),
    ],
)
def test_target(endpoints: list[str], target: str) -> None:
    assert grpc_target(endpoints) == target


@pytest.mark.parametrize(
    "endpoints",
    [
        [],
        ["127.0.0.1"],
        ["http://127.0.0.1:2379"],
        ["127.0.0.1:port"],
        ["127.0.0.1:99999"],
        [":2379"],
        ["10.0.0.1:1", "[::1]:1"],
        ["a.example:1", "b.example:1"],
        ["10.0.0.1:1", "b.example:1"],
    ],
)
def test_bad_endpoints_are_named(endpoints: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"etcd\.endpoints"):
        grpc_target(endpoints)


@pytest.mark.parametrize(
    ("prefix", "end"), [("/a/", b"/a0"), ("", b"\0"), ("/z", b"/{"), ("é", b"\xc3\xaa")]
)
def test_prefix_end(prefix: str, end: bytes) -> None:
    assert prefix_end(prefix) == end
