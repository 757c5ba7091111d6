from dataclasses import replace
from pathlib import Path

import pytest
from test_deploy_plan import OPTIONS

from prfaas_cli.failures import ProblemsError
from prfaas_cli.place import Place
from prfaas_cli.preflight import Machine, check_machine, find_model_problem

PLACE = Place(Path("/state"), "dev")
GOOD = Machine(
    platform="linux",
    user_id=lambda: 0,
    find_program=lambda name: f"/bin/{name}",
    sglang_problem=lambda: None,
    model_problem=lambda path: None,
    port_problem=lambda host, port: None,
    available_memory_bytes=lambda: 16 << 30,
)


def problems(machine: Machine, place: Place = PLACE, *, fresh: bool = True) -> list[str]:
    with pytest.raises(ProblemsError) as caught:
        check_machine(place, OPTIONS, machine=machine, fresh=fresh)
    assert caught.value.exit_code == 3
    return caught.value.problems


def test_files_of_the_gateways_port_are_looked_at_before_anything_starts(tmp_path: Path) -> None:
    none, text = tmp_path / "none", tmp_path / "text"
    text.write_text("pfs-a-key-and-no-keys-file")
    options = replace(OPTIONS, api_keys=str(text), tls_cert=str(none), tls_key=str(none))
    with pytest.raises(ProblemsError) as caught:
        check_machine(PLACE, options, machine=GOOD)
    keys, tls = caught.value.problems
    assert keys.startswith(f"--api-keys {text}: ")
    assert "pfs-a-key" not in keys
    assert tls == f"--tls-cert {none}, --tls-key {none}: No such file or directory"
    check_machine(PLACE, replace(OPTIONS, tls=True), machine=GOOD)  # its files are made later


def test_a_good_machine_has_no_problems_and_no_warnings() -> None:
    assert check_machine(PLACE, OPTIONS, machine=GOOD) == []


@pytest.mark.parametrize(
    ("machine", "word"),
    [
        (replace(GOOD, platform="darwin"), "Linux"),
        (replace(GOOD, user_id=lambda: 1000), "root"),
        (replace(GOOD, find_program=lambda name: None if name == "etcd" else name), "etcd-server"),
        (replace(GOOD, find_program=lambda name: None if name == "ip" else name), "iproute2"),
        (replace(GOOD, find_program=lambda name: None if name == "iptables" else name), "iptables"),
        (replace(GOOD, sglang_problem=lambda: "sglang 1.0 is installed"), "sglang 1.0"),
        (replace(GOOD, model_problem=lambda path: f"{path} is empty"), "/models/tiny"),
        (replace(GOOD, port_problem=lambda host, port: "in use"), "--port 8080"),
    ],
)
def test_each_fault_is_one_line_that_names_it(machine: Machine, word: str) -> None:
    found = problems(machine)
    assert len(found) == 1
    assert word in found[0]


def test_all_faults_are_found_in_one_go() -> None:
    bad = replace(
        GOOD,
        user_id=lambda: 1,
        find_program=lambda name: None,
        sglang_problem=lambda: "s",
        model_problem=lambda path: "m",
        port_problem=lambda host, port: "p",
    )
    assert len(problems(bad, Place(Path("/x" * 50), "dev"))) == 8


def test_our_own_gateway_may_hold_the_port() -> None:
    machine = replace(GOOD, port_problem=lambda host, port: "in use")
    assert check_machine(PLACE, OPTIONS, machine=machine, fresh=False) == []


def test_little_memory_is_a_warning() -> None:
    machine = replace(GOOD, available_memory_bytes=lambda: 2 << 30)
    assert "2.0 GiB" in check_machine(PLACE, OPTIONS, machine=machine)[0]


def test_a_tiny_model_must_be_made_by_todays_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prfaas_cpu.models.default_models_dir", lambda: tmp_path)
    model = tmp_path / "qwen3-tiny"
    assert "is not made yet" in str(find_model_problem(str(model)))
    model.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (model / name).write_text("{}")
    problem = str(find_model_problem(str(model)))
    assert "outdated" in problem
    assert "prfaas_cpu.models make" in problem


def test_any_other_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    assert find_model_problem(str(tmp_path)) is None
    assert "does not exist" in str(find_model_problem(str(tmp_path / "qwen3-tiny")))


def test_nothing_is_made(tmp_path: Path) -> None:
    problems(replace(GOOD, user_id=lambda: 1), Place(tmp_path / "state", "dev"))
    assert not list(tmp_path.iterdir())
