"""`prfaasctl top` before a live gateway: once, as lines, as JSON, and on a terminal of its own."""

import asyncio
import json
import os
import pty
import signal
import sys
from pathlib import Path

import pytest
from gateway_world import World
from tiny_tokenizer import words
from yarl import URL

from prfaas_cli.app import run_command
from prfaas_cli.observation import Observed
from prfaas_cli.options import DeployOptions

LIMIT_S = 30.0


def observe(port: int) -> None:
    """Let commands find a gateway where they look for a deployment's; in a process of its own."""
    options = DeployOptions(("a", "b"), "", port, 100, "", "", "", ())
    Observed.of = lambda place: Observed(place, options, ())  # type: ignore[method-assign, misc, assignment]


@pytest.fixture
async def served(world: World) -> World:
    await world.complete(words(10))
    await world.complete(words(500, first=50))
    return world


def script(world: World, *arguments: str) -> list[str]:
    """Return the command that runs `top` in another process."""
    port = URL(world.url).port
    code = (
        f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]; "
        f"from test_top_command import observe; observe({port}); "
        f"from prfaas_cli.main import run; sys.exit(run(['top', *sys.argv[1:]]))"
    )
    return [sys.executable, "-c", code, *arguments]


async def run(world: World, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *script(world, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
    return process.returncode or 0, out.decode(), err.decode()


async def test_one_look_shows_all_parts(served: World) -> None:
    code, out, _ = await run(served, "--once")
    assert code == 0
    for part in ("live", "threshold: 100 tokens", "link from a:", "above_threshold", "b-decode-0"):
        assert part in out, part
    assert "\x1b" not in out


async def test_json_is_the_overview_of_the_gateway(served: World) -> None:
    code, out, _ = await run(served, "--once", "--json", "--decisions", "1")
    assert code == 0
    view = json.loads(out)
    assert view["region"] == "b"
    assert [noted["reason"] for noted in view["decisions"]] == ["above_threshold"]
    assert view["history"] == []


async def test_without_a_terminal_it_writes_look_after_look_until_interrupted(
    served: World,
) -> None:
    process = await asyncio.create_subprocess_exec(
        *script(served, "--json", "--interval", "0.2"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            first = json.loads(await process.stdout.readline())
            await served.complete(words(30))
            while json.loads(await process.stdout.readline())["decisions"] == first["decisions"]:
                pass
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
    finally:
        await end(process)
    assert (process.returncode, err) == (0, b"")


async def test_a_terminal_gets_its_screen_back_after_ctrl_c(served: World) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *script(served, "--interval", "0.2"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "80", "LINES": "9"},
    )
    os.close(theirs)
    try:
        async with asyncio.timeout(LIMIT_S):
            shown = await read_until(ours, b"\x1b[J")
            frame = shown.split(b"\x1b[H")[-1].split(b"\x1b[J")[0].decode()
            lines = frame.replace("\x1b[K", "").split("\r\n")
            assert len(lines) <= 9
            assert all(len(line) <= 80 for line in lines)
            process.send_signal(signal.SIGINT)
            rest = await read_until(ours, b"\x1b[?1049l")
            assert await process.wait() == 0
        assert b"\x1b[?25h" in rest
        assert b"Traceback" not in rest
    finally:
        os.close(ours)
        await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def read_until(file: int, end: bytes) -> bytes:
    seen = b""
    while end not in seen:
        seen += await asyncio.to_thread(os.read, file, 4096)
    return seen


async def test_a_gateway_that_goes_away_is_said_and_waited_for(
    served: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = URL(served.url).port
    assert port is not None
    monkeypatch.setattr(Observed, "of", Observed.of)
    observe(port)
    naps = iter([None, None])

    def nap(_seconds: float) -> None:
        if next(naps, "end") == "end":
            raise KeyboardInterrupt
        monkeypatch.setattr(Observed, "_ask_gateway", refuse)

    def refuse(*_args: object, **_more: object) -> tuple[int, str]:
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr("prfaas_cli.top.time.sleep", nap)
    assert await asyncio.to_thread(run_command, ("top",), as_json=False) == 0
    said = capsys.readouterr()
    assert said.out.count("requests:") == 1
    assert said.err.count("nobody there") == 2
    assert await asyncio.to_thread(run_command, ("top", "--once"), as_json=False) == 1
