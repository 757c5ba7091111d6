"""Every command and configuration of docs/api.md, and what its tables name."""

import asyncio
import json
import re
import shlex
import subprocess
import uuid
from pathlib import Path

import pytest
from etcd_server import EtcdServer
from gateway_world import World
from test_decisions_command import run, watch

from prfaas.api_section import ApiSection
from prfaas.config import parse_node_config
from prfaas.reasons import Reason
from prfaas_gateway.errors import RequestError
from prfaas_gateway.responses import error_response

TEXT = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]
GATEWAY = '[node]\nname = "g"\nrole = "gateway"\nregion = "b"\n[gateway]\nmodel_path = "m"\n'


def curl(command: str, url: str, key: str) -> str:
    words = [
        word.replace("http://127.0.0.1:8080", url).replace("$PRFAAS_API_KEY", key)
        for word in shlex.split(command)
    ]
    return subprocess.run([*words, "--fail"], check=True, capture_output=True, text=True).stdout


async def test_the_commands_work_in_the_order_that_they_stand_in(
    shared_etcd: EtcdServer,
    model_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRFAAS_API_KEY", raising=False)
    keys = [command for command in COMMANDS if command.startswith("prfaasctl keys")]
    curls = [command for command in COMMANDS if command.startswith("curl ")]
    others = [command for command in COMMANDS if command not in keys + curls]
    assert min(len(keys), len(curls), len(others)) >= 2
    made = {}
    for command in keys:
        words = shlex.split(command)
        assert await run(*words[1:]) == 0, command
        made[words[3]] = capsys.readouterr().out.strip()
    (tmp_path / "ops.key").write_text(made["ops"])
    api = ApiSection(keys_file=str(tmp_path / "keys.toml"))
    async with World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex) as world:
        await world.start_engines()
        await world.start_gateway(api=api, key=made["ops"])
        watch(world, monkeypatch)
        answers = [await asyncio.to_thread(curl, each, world.url, made["ops"]) for each in curls]
        assert json.loads(answers[0])["data"][0]["id"] == "tiny"
        assert "[DONE]" in answers[2]
        for command in others:
            assert command.startswith("prfaasctl --api-key-file"), command
            assert await run(*shlex.split(command)[1:]) == 0, command


def test_the_configurations_are_valid() -> None:
    sections = [block for kind, block in BLOCKS if kind == "toml"]
    assert len(sections) == 2
    for section in sections:
        assert parse_node_config(GATEWAY + section, source="docs/api.md").api != ApiSection()


def test_the_defaults_are_the_sections() -> None:
    for name, value in re.findall(r"`(\w+_timeout_s|max_connections\w*)` \((\d+)\)", TEXT):
        assert getattr(ApiSection(), name) == float(value), name


def test_every_error_is_in_the_table_with_its_status() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \|", TEXT, re.MULTILINE)
    told = {(int(status), code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    of_aiohttp = {(404, "not_found"), (405, "method_not_allowed")}
    routes = {"below_threshold", "above_threshold", "link_congested", "link_closed"}
    routes |= {"no_remote_prefill", "no_local_prefill", "client_gone", "internal_error"}
    answers = {
        (error_response(RequestError("", reason=reason)).status, str(reason))
        for reason in Reason
        if reason not in routes
    }
    assert told == answers | of_aiohttp
