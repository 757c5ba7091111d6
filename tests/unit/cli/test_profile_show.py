"""`profile show` and `list`, called as the command line calls them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prfaas.profile import DecodeProfile, InstanceProfile, Origin, constant, table
from prfaas.profile.catalog import catalog_names
from prfaas.profile.document import render_profile
from prfaas.profile.samples import Provenance
from prfaas_cli.main import run

MEASURED = InstanceProfile(
    name="mine",
    model="tiny",
    hardware="a laptop",
    gpus=1,
    prefill_s=table([(1024, 0.5), (32768, 4.0)]),
    kv_bytes=constant(2**20),
    decode=DecodeProfile(table([(1, 0.02), (4, 0.04)]), max_batch=6),
    origin=Origin.MEASURED,
    source="a test",
)


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(["profile", *arguments]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def test_list_names_every_profile_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(catalog_names())
    assert all("2604.15039" in line for line in lines[1:])
    assert [one["name"] for one in json.loads(said(capsys, "list", "--json"))] == [*catalog_names()]


def test_show_prints_table_5(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "show", "paper-1t-h200").splitlines()
    assert "origin: published; PrfaaS (arXiv 2604.15039) Table 5" in lines
    assert lines[-2].split() == ["128K", "2316.3", "MiB", "7.40", "s", "2.63", "Gbps"]
    assert lines[-1] == "decode: none; this instance only prefills"
    assert "*" not in "".join(lines)


def test_show_marks_what_is_extrapolated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.json"
    how = Provenance("2026-01-01T00:00:00Z", versions=(("sglang", "0.5.23"),), complete=False)
    file.write_text(render_profile(MEASURED, how))
    text = said(capsys, "show", str(file))
    assert "measured: 2026-01-01T00:00:00Z, sglang 0.5.23" in text
    assert "incomplete: " in text
    marked = [line.split()[0] for line in text.splitlines() if "*" in line]
    assert marked == ["128K", "6", "*"]
    shown = json.loads(said(capsys, "show", str(file), "--json"))
    assert [row["extrapolated"] for row in shown["lengths"]] == [[], [], [], ["prefill_s"]]
    assert [row["batch"] for row in shown["decode"]["steps"]] == [1, 2, 4, 6]
    assert shown["lengths"][0]["phi_gbps"] == pytest.approx(2**20 / 0.5 * 8 / 1e9)


def test_a_guess_of_ones_own_has_not_the_caveat_of_aiconfigurator(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.json"
    file.write_text(render_profile(replace(MEASURED, origin=Origin.ESTIMATED)))
    assert "kernel times" not in said(capsys, "show", str(file))
    assert json.loads(said(capsys, "show", str(file), "--json"))["caveat"] is None


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("nothing", "neither a file nor of the catalog: paper-1t-h200"),
        ("/nowhere/p.json", "/nowhere/p.json: No such file"),
        ("/", "/: Is a directory"),
        ("/proc/version", "/proc/version: not JSON"),
        ("/dev/zero", "/dev/zero: larger than 64 MiB"),
    ],
)
def test_show_refuses_in_one_line(
    capsys: pytest.CaptureFixture[str], argument: str, expected: str
) -> None:
    text = said(capsys, "show", argument, code=2)
    assert expected in text
    assert text.count("\n") == 1
