"""`prfaasctl prefix` before a gateway whose regions have no pools, and one that says much."""

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_world import World
from test_decisions_command import run, watch

from prfaas_cli.observation import Observed

MOVED = {
    "source": "a-prefill-0",
    "destination": "b-prefill-0",
    "prompt_tokens": 700,
    "outcome": "moved",
    "tokens": 640,
    "had_tokens": 64,
    "num_bytes": 12345,
    "seconds": 0.25,
    "detail": "",
}


async def test_moves_are_shown_and_regions_without_pools_are_named(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    watch(world, monkeypatch)
    assert await run("prefix", "moves") == 0
    shown = capsys.readouterr().out
    assert "link to a: scarce" in shown
    assert "no move yet" in shown
    text = tmp_path / "prompt.txt"
    text.write_text("w1 w2")
    assert await run("prefix", "move", "--from", "a", "--to", "b", "--text-file", str(text)) == 1
    assert "no prefill node of tiny with a pool in region 'a'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({}, 0, "640 of 700 tokens can be resumed from, 64 before; 12345 bytes in 0.25 s"),
        ({"outcome": "nothing", "num_bytes": 0}, 0, "the source has no more"),
        ({"outcome": "unknown", "detail": "no engine"}, 0, "nothing was moved: no engine"),
        ({"outcome": "failed", "detail": "away"}, 1, "a-prefill-0 to b-prefill-0: away"),
    ],
)
async def test_what_became_of_a_move_is_said(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    change: dict[str, Any],
    code: int,
    text: str,
) -> None:
    watch(world, monkeypatch)
    asked: list[Any] = []

    def answer(_: Observed, path: str, body: Any, *, timeout_s: float) -> tuple[int, str]:
        asked.append((path, body, timeout_s > 60))
        return 200, json.dumps(MOVED | change)

    monkeypatch.setattr(Observed, "_ask_gateway", answer)
    tokens = tmp_path / "prompt.json"
    tokens.write_text("[1, 2, 3]")
    where = ("--from", "a", "--to", "b", "--tokens-file", str(tokens))
    assert await run("prefix", "move", *where, "--cache-salt", "s") == code
    captured = capsys.readouterr()
    assert text in (captured.err if code else captured.out)
    body = {"source": "a", "destination": "b", "model": "", "tokens": [1, 2, 3], "cache_salt": "s"}
    assert asked == [("/admin/v1/moves", body, True)]


@pytest.mark.parametrize(
    ("content", "text"), [("{}", "not a list"), ("[1,", "not JSON"), (None, "No such file")]
)
async def test_a_file_that_is_no_prompt_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None, text: str
) -> None:
    path = tmp_path / "prompt.json"
    if content is not None:
        path.write_text(content)
    where = ("--from", "a", "--to", "b", "--tokens-file", str(path))
    assert await run("prefix", "move", *where) == 2
    assert text in capsys.readouterr().err
    assert await run("prefix", "move", "--from", "a", "--to", "b") == 2
    assert "either --text-file or --tokens-file" in capsys.readouterr().err
