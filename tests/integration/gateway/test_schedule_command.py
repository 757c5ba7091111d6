"""`prfaasctl schedule` before a gateway."""

import json
import shlex
from pathlib import Path

import pytest
from gateway_world import World
from test_decisions_command import run, watch


async def test_a_plan_is_tried_applied_pinned_and_shown(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch(world, monkeypatch)

    async def said(*arguments: str) -> str:
        assert await run("schedule", *arguments) == 0
        return capsys.readouterr().out

    assert "no plan yet; the threshold is 100 tokens" in await said("show")
    assert "no plan yet" in await said("versions")
    wanted = ("apply", "--threshold", "300", "--roles", "b=1/1", "--why", "tonight")
    assert "would be version 1" in await said(*wanted, "--dry-run")
    assert "no plan yet" in await said("show")
    lines = await said(*wanted)
    assert "threshold_tokens: none -> 300" in lines
    assert "roles: none -> b=1/1" in lines
    assert "pinned: False -> True" in await said("pin")
    await world.until_fleet(lambda fleet: fleet["threshold_tokens"] == 300)
    shown = await said("show")
    assert "version 2, pinned, by operator at b-gateway-0: manual" in shown
    assert "gateway.case" in shown
    found = json.loads(await said("versions", "--json"))["versions"]
    assert [(plan["version"], plan["why"]) for plan in found] == [(2, "manual"), (1, "tonight")]
    assert "pinned: True -> False" in await said("unpin")
    assert "tonight" in await said("versions")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("apply",), 2, "nothing to apply"),
        (("apply", "--roles", "b=x"), 2, "b=3/5"),
        (("apply", "--roles", "b=1/0"), 1, "roles.b.n_d"),
        (("apply", "--roles", "z=1/1"), 1, "roles.z: no such region; known: a, b"),
        (("apply", "--roles", "z=1/1", "--dry-run"), 1, "roles.z: no such region"),
        (("apply", "--threshold", "-1"), 2, "threshold"),
    ],
)
async def test_what_is_no_plan_is_said_in_a_line(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    watch(world, monkeypatch)
    assert await run("schedule", *arguments) == code
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


async def test_the_commands_of_the_page_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(world, monkeypatch)
    lines = (Path(__file__).parents[3] / "docs" / "routing.md").read_text().splitlines()
    commands = [line for line in lines if line.startswith("prfaasctl ")]
    assert len(commands) > 5
    for command in commands:
        assert await run(*shlex.split(command)[1:]) == 0, command
    curls = [line for line in lines if line.startswith("curl ")]
    for command in curls:
        url = shlex.split(command)[1].replace("http://127.0.0.1:8080", "")
        async with world.http.get(url) as response:
            assert response.status == 200, command
