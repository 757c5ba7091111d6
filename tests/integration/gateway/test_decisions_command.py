"""`prfaasctl decisions` before a gateway that has decided something."""

import asyncio
import json

import pytest
from gateway_world import World
from tiny_tokenizer import words
from yarl import URL

from prfaas_cli.app import run_command
from prfaas_cli.observation import Observed
from prfaas_cli.options import DeployOptions
from prfaas_cli.place import Place


def watch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find the world's gateway where they look for a deployment's."""
    port = URL(world.url).port
    assert port is not None
    options = DeployOptions(("a", "b"), "", port, 100, "", "", "", ())

    def observe(place: Place) -> Observed:
        return Observed(place, options, ())

    monkeypatch.setattr(Observed, "of", observe)


async def run(*arguments: str) -> int:
    return await asyncio.to_thread(run_command, arguments, as_json="--json" in arguments)


async def test_decisions_are_shown_newest_first(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch(world, monkeypatch)
    assert await run("decisions") == 0
    assert "no decision yet" in capsys.readouterr().out
    await world.complete(words(10))
    await world.complete(words(500, first=50))
    assert await run("decisions", "--json") == 0
    found = json.loads(capsys.readouterr().out)["decisions"]
    assert [one["reason"] for one in found] == ["above_threshold", "below_threshold"]
    assert await run("decisions", "--reason", "below_threshold") == 0
    shown = capsys.readouterr().out
    assert "b-prefill-0" in shown
    assert "above_threshold" not in shown


async def test_what_cannot_be_shown_is_said_in_a_line(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch(world, monkeypatch)
    assert await run("decisions", "--reason", "because") == 2
    assert "below_threshold" in capsys.readouterr().err
    monkeypatch.setattr(
        Observed, "_ask_gateway", lambda self, path, body: (503, '{"missing": ["x"]}')
    )
    assert await run("decisions") == 1
    assert "missing: x" in capsys.readouterr().err
