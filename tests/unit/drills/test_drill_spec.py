"""Drills as TOML: what is read, and how what is wrong is told."""

from pathlib import Path

import pytest

from prfaas.errors import ConfigError
from prfaas_loadtest.drills import library_names, make_plan, parse_drill, read_drill
from prfaas_loadtest.drills.fault import FaultKind

PROCESSES = [
    *("a-prefill-0", "b-prefill-0", "b-prefill-1", "b-decode-0", "b-decode-1"),
    *("a-prefill-0.agent", "b-decode-0.agent", "b-gateway-0", "b-etcd-0", "link"),
]
GOOD = """
name = "cut"
about = "The link is cut."
kinds = [1, 7]
[load]
seconds = 10.0
requests_per_s = 4.0
[[fault]]
kind = "partition"
at_s = 2.0
seconds = 3.0
[expect]
sees = ["fallback"]
"""


def test_a_drill_is_read_with_its_defaults() -> None:
    drill = parse_drill(GOOD, source="cut.toml")
    assert (drill.name, drill.kinds, drill.seed) == ("cut", (1, 7), 1)
    (fault,) = drill.faults
    assert (fault.kind, fault.at_s, fault.end_s, fault.way) == (FaultKind.PARTITION, 2, 5, "both")
    assert drill.expect.right_share == 1.0
    assert drill.expect.sees == {"fallback"}
    assert drill.site.instances == "1,1,1"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            'kind = "partition"',
            'kind = "earthquake"',
            "fault[0].kind = 'earthquake': allowed: loss",
        ),
        ("at_s = 2.0", "at_s = 8.0", "must be over by the load's end, 10 s"),
        ("at_s = 2.0", "at_s = -1.0", "fault[0].at_s = -1.0"),
        ("seconds = 3.0\n", "", "fault[0].seconds: missing"),
        ("seconds = 3.0\n", "seconds = 3.0\nfactor = 2.0\n", "fault[0].factor = 2.0"),
        ("seconds = 10.0", "seconds = 1e9", "at most 5000 requests"),
        ("seconds = 10.0", "seconds = 10.0\nlong_tokens = 1000001", "load.long_tokens = 1000001: "),
        ('"fallback"', '"fallbeck"', "expect.sees = ['fallbeck']"),
        ("kinds = [1, 7]", "kinds = [48]", "kinds = [48]"),
        ('name = "cut"', 'name = "A cut"', "name = 'A cut'"),
        ("[expect]", "[expects]", "expects: unknown key"),
        ('name = "cut"', "name = ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as failed:
        parse_drill(GOOD.replace(old, new), source="cut.toml")
    assert str(failed.value).startswith("cut.toml: ")
    assert says in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_sudden_fault_lasts_no_time_and_needs_a_target() -> None:
    kill = GOOD.replace('kind = "partition"', 'kind = "kill"').replace("seconds = 3.0\n", "")
    with pytest.raises(ConfigError, match=r"fault\[0\]\.target: missing"):
        parse_drill(kill, source="kill.toml")
    with_target = kill.replace("at_s = 2.0", 'at_s = 2.0\ntarget = "b-etcd-0"')
    assert parse_drill(with_target, source="kill.toml").faults[0].seconds == 0


def test_the_library_has_twenty_drills_under_their_own_names() -> None:
    names = library_names()
    assert len(names) >= 20
    for name in names:
        drill = read_drill(name)
        assert drill.name == name
        assert drill.kinds, f"{name}: which failure does it answer?"
        assert make_plan(drill, seed=1, targets=PROCESSES).requests


def test_the_library_breaks_everything_that_can_be_broken() -> None:
    """A clock step alone is no drill of the library: no process of this machine has its own."""
    used = {fault.kind for name in library_names() for fault in read_drill(name).faults}
    assert set(FaultKind) - used == {FaultKind.CLOCK_STEP}


def test_a_name_that_is_none_says_where_names_are() -> None:
    with pytest.raises(ConfigError, match="drill list"):
        read_drill("no-such-drill")


def test_every_drill_is_in_the_docs_with_a_run_of_it() -> None:
    """The page says which failures it answers, the track record how it went."""
    docs = Path(__file__).parents[3] / "docs"
    page, record = ((docs / name).read_text() for name in ("drills.md", "TESTING.md"))
    for name in library_names():
        assert f"`{name}`" in page, name
        assert f"| `{name}` |" in record, name
