import re
from dataclasses import replace
from pathlib import Path

import pytest

from prfaas.errors import ConfigError
from prfaas_netem.jitter import Distribution
from prfaas_netem.link_presets import PRESETS, preset
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.loss import BurstLoss
from prfaas_netem.topology import Topology
from prfaas_netem.topology_file import MAX_FILE_BYTES, load_topology, parse_topology
from prfaas_netem.ways import Direction, Host, Port, Way

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "tests/data/topologies/three-regions.toml"
TWO = "[regions.a]\n[regions.b]\n"


def test_the_example():
    topology = load_topology(EXAMPLE)
    assert topology.regions == ("us", "eu", "asia")
    assert topology.hosts == (Host("us", "gpu-1"),)
    assert topology.seed == 7
    assert topology.way("us", "asia").spec == PRESETS["cross-region"]
    there, back = topology.way("us", "eu"), topology.way("eu", "us")
    assert there.spec == LinkSpec(
        rate_bits_per_s=10**10,
        delay_s=0.045,
        jitter_s=0.001,
        jitter_distribution=Distribution.PARETO,
        burst_loss=BurstLoss(enter=0.001, leave=0.2),
    )
    assert back.spec == replace(there.spec, rate_bits_per_s=5 * 10**9)
    assert there.schedule is not None
    assert there.schedule.period_s == 1200
    (step,) = there.schedule.steps
    worse = BurstLoss(enter=0.01, leave=0.2)
    assert (step.at_s, step.spec) == (
        600,
        replace(there.spec, rate_bits_per_s=10**9, burst_loss=worse),
    )


def test_the_documented_file_is_the_example():
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/topology.md").read_text(), re.DOTALL)
    assert parse_topology(block) == load_topology(EXAMPLE)


def test_what_is_not_described_is_as_always():
    topology = parse_topology(TWO)
    assert topology == Topology.plan()
    assert topology.way("a", "b") == Way("a", "b", LinkSpec.default())


def test_the_way_back_takes_over_what_it_does_not_say():
    text = TWO + '[[links]]\nbetween = ["a", "b"]\nrtt = "40ms"\nloss = "1%"\n[links.back]\n'
    assert parse_topology(text).way("b", "a").spec == LinkSpec.parse(rtt="40ms", loss="1%")
    assert parse_topology(text + 'delay = "5ms"').way("b", "a").spec == LinkSpec.parse(
        delay="5ms", loss="1%"
    )
    assert parse_topology(text + 'burst_loss = "1%,50%"').way("b", "a").spec == LinkSpec.parse(
        rtt="40ms", burst_loss="1%,50%"
    )
    assert parse_topology(text + 'preset = "metro"').way("b", "a").spec == PRESETS["metro"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("regions = 3", "regions: 3; allowed: a table"),
        ("[regions.a]", "allowed: two to 8"),
        (TWO + "colour = 1", "unknown key 'colour'"),
        ("colour = 1\n" + TWO, "unknown key 'colour'"),
        ("seed = 'x'\n" + TWO, "seed"),
        ("seed = -1\n" + TWO, "seed"),
        ("[regions.a]\nhosts = 3\n[regions.b]", "regions.a: hosts = 3"),
        ("[regions.a]\nhosts = []\n[regions.b]", "hosts"),
        ("[regions.a]\nhosts = ['x', 'x']\n[regions.b]", "different names"),
        ("[regions.a]\nhosts = ['x', 'Y']\n[regions.b]", "host 'Y'"),
        (f"[regions.a]\nhosts = {[f'h{n}' for n in range(33)]}\n[regions.b]", "allowed: 32"),
        ("links = 3\n" + TWO, "links"),
        (TWO + "[[links]]", "between = None"),
        (TWO + "[[links]]\nbetween = ['a', 'c']", "['a', 'c']: no region 'c'; allowed: a, b"),
        (TWO + "[[links]]\nbetween = ['a', 'a']", "link a-a"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\n[[links]]\nbetween = ['b', 'a']", "once"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\nlos = '1%'", "link a-b: unknown key 'los'"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\nloss = 1", "loss = 1; allowed: a text"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\nloss = '2'", "link a-b: --loss"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\npreset = 'moon'", "preset: 'moon'; allowed: me"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\nrepeat_every = '3s'", "with a schedule"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\nschedule = []", "schedule"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\n[[links.schedule]]\nloss = '1%'", "at = None"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\n[[links.schedule]]\nat = '1s'\nx = 1", "'x'"),
        (TWO + "[[links]]\nbetween = ['a', 'b']\n[links.back]\nbetween = 1", "back"),
        ("[[", "not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, said):
    path = tmp_path / "sites.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load_topology(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load_topology(tmp_path / "none.toml")
    (tmp_path / "long.toml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match=r"long\.toml: allowed: "):
        load_topology(tmp_path / "long.toml")
    (tmp_path / "odd.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"odd\.toml: "):
        load_topology(tmp_path / "odd.toml")


def test_everything_goes_through_json(tmp_path):
    topology = replace(load_topology(EXAMPLE), deployment="x")
    topology.save(tmp_path / "topology.json")
    assert Topology.load(tmp_path / "topology.json") == topology


@pytest.mark.parametrize(
    "document",
    [
        {"ways": 1},
        {"ways": [{"from": "a", "to": "b"}]},
        {"ways": [{"from": 1, "to": "b", "spec": {}, "schedule": None}]},
        {"hosts": [["a"]]},
        {"hosts": [["c", "x"]]},
        {"hosts": [["a", "x"], ["a", "x"]]},
        {"seed": "x"},
        {"seed": True},
    ],
)
def test_wrong_json_is_refused(document):
    with pytest.raises(ConfigError):
        Topology.from_json(document)


def test_names_addresses_and_ports_of_hosts():
    topology = load_topology(EXAMPLE)
    assert topology.namespaces == (
        "prfaas-wan",
        "prfaas-us",
        "prfaas-us.gpu-1",
        "prfaas-eu",
        "prfaas-asia",
    )
    assert topology.ports("us") == (
        Port("us", "prfaas-us", "10.213.1.2", "port1-0", "to-us"),
        Port("us", "prfaas-us.gpu-1", "10.213.1.3", "port1-1", "to-us"),
    )
    assert topology.ports("eu") == (Port("eu", "prfaas-eu", "10.213.2.2", "to-eu", None),)
    assert topology.subnet("asia") == "10.213.3.0/24"


def test_every_two_regions_are_linked_by_queues_of_their_own():
    directions = list(load_topology(EXAMPLE).directions())
    assert [each.queue for each in directions] == list(range(6))
    assert directions[0] == Direction("us", "eu", 0)
    assert len({(each.source, each.target) for each in directions}) == 6


def test_with_ways_and_mapped():
    topology = load_topology(EXAMPLE)
    changed = topology.with_ways(Way("us", "eu", LinkSpec()))
    assert changed.way("us", "eu") == Way("us", "eu", LinkSpec())
    assert changed.way("eu", "us") == topology.way("eu", "us")
    slower = topology.mapped(lambda spec: spec.merged({"delay_s": spec.delay_s * 2}), stretch=3)
    assert slower.way("us", "eu").spec.delay_s == 0.09
    assert slower.way("us", "eu").schedule.steps[0].at_s == 1800
    assert slower.way("us", "asia").spec.delay_s == 0.02


def test_presets_are_distinct_links():
    assert len({str(spec) for spec in PRESETS.values()}) == len(PRESETS) == 4
    assert preset("cross-region").rtt_s == LinkSpec.default().rtt_s
