"""Every command of docs/observability.md, before a live gateway, and what its tables name."""

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import yaml
from gateway_world import World
from test_top_command import script
from tiny_tokenizer import words

from prfaas_gateway.span_exporter import ExportSettings

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "observability.md").read_text()
FENCES = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = [line for kind, block in FENCES if not kind for line in block.splitlines()]


async def test_the_commands_work(world: World) -> None:
    await world.complete(words(10))
    assert len(COMMANDS) >= 6
    for command in COMMANDS:
        parts = shlex.split(command.replace("http://127.0.0.1:8080", world.url))
        if parts[:2] == ["prfaasctl", "top"]:
            parts = script(world, *parts[2:])
        process = await asyncio.create_subprocess_exec(
            *parts,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, (command, out.decode())


def test_the_jobs_are_those_that_the_rules_know() -> None:
    config = yaml.safe_load(next(block for kind, block in FENCES if kind == "yaml"))
    named = {job["job_name"] for job in config["scrape_configs"]}
    rules = (ROOT / "gateway" / "monitoring" / "alerts.yaml").read_text()
    assert set(re.findall(r'job="([^"]+)"', rules)) == named


def test_every_variable_of_the_table_is_read() -> None:
    class Seen(dict[str, str]):
        def get(self, key: str, default: str = "") -> str:  # type: ignore[override]
            asked.add(key)
            return super().get(key, default)

    asked: set[str] = set()
    ExportSettings.of(Seen(OTEL_EXPORTER_OTLP_ENDPOINT="http://c:4318"))
    written = set(re.findall(r"^\| `(OTEL_\w+)`", TEXT, re.MULTILINE))
    assert written == asked - {"OTEL_EXPORTER_OTLP_PROTOCOL"}
