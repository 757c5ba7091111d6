import pytest

from prfaas.errors import ConfigError, StateError
from prfaas_netem.counters import parse_counters
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.topology import Topology
from prfaas_netem.ways import Direction


def test_names_and_addresses_of_the_default_deployment():
    topology = Topology.plan()
    assert topology.namespaces == ("prfaas-wan", "prfaas-a", "prfaas-b")
    assert [topology.address(region) for region in "ab"] == ["10.213.1.2", "10.213.2.2"]
    assert topology.router_address("b") == "10.213.2.1"


def test_names_of_another_deployment():
    topology = Topology.plan(deployment="trial", regions=("us-east", "eu"))
    assert topology.namespaces == ("prfaas-trial-wan", "prfaas-trial-us-east", "prfaas-trial-eu")


def test_directions():
    first, second = Topology.plan().directions()
    assert (first, second) == (Direction("a", "b", 0), Direction("b", "a", 1))
    assert (first.in_interface, first.out_interface) == ("to-a", "to-b")


def test_longest_region_fits_an_interface_name():
    name = "abcdefghijkl"
    assert len(next(Topology.plan(regions=(name, "b")).directions()).in_interface) == 15


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "abcdefghijklm", "a b", "é", "a\n"])
def test_wrong_region_names(name):
    with pytest.raises(ConfigError, match=r"--regions: .*allowed: "):
        Topology.plan(regions=(name, "b"))


def test_reserved_and_repeated_regions():
    with pytest.raises(ConfigError, match="reserved"):
        Topology.plan(regions=("wan", "b"))
    with pytest.raises(ConfigError, match="different"):
        Topology.plan(regions=("b", "b"))


@pytest.mark.parametrize("regions", [(), ("a",), tuple("abcdefghi")])
def test_two_to_eight_regions(regions):
    with pytest.raises(ConfigError, match="allowed: two to 8"):
        Topology.plan(regions=regions)


@pytest.mark.parametrize("name", ["", "X", "a/b", "../x", "a" * 25])
def test_wrong_deployment_names(name):
    with pytest.raises(ConfigError, match=r"deployment .*allowed: "):
        Topology.plan(deployment=name)


def test_unknown_region():
    with pytest.raises(ConfigError, match="region 'c' is not in deployment default; allowed: a, b"):
        Topology.plan().namespace("c")


def test_file_round_trip(tmp_path):
    topology = Topology.plan(deployment="t", regions=("x", "y"), link=LinkSpec.parse(loss="1%"))
    topology.save(tmp_path / "topology.json")
    assert Topology.load(tmp_path / "topology.json") == topology


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"region": 1}', '{"regions": "ab"}', '{"deployment": 1}', '{"link": 1}'],
)
def test_wrong_file_is_named(tmp_path, text):
    path = tmp_path / "topology.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"topology\.json: "):
        Topology.load(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.json"):
        Topology.load(tmp_path / "none.json")


DEVICES = """Inter-|   Receive                   |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0
   wan: 1000 10 0 0 0 0 0 0 2000 20 0 0 0 0 0 0
"""  # noqa: E501


def test_counters_of_an_interface():
    counters = parse_counters(DEVICES, interface="wan", where="x")
    assert counters == {"tx_bytes": 2000, "rx_bytes": 1000, "tx_packets": 20, "rx_packets": 10}
    with pytest.raises(StateError, match="namespace x has no interface eth9"):
        parse_counters(DEVICES, interface="eth9", where="x")
