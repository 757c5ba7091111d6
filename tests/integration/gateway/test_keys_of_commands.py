"""`prfaasctl` before a gateway that wants keys."""

from pathlib import Path
from uuid import uuid4

import pytest
from etcd_server import EtcdServer
from gateway_world import World
from test_decisions_command import run, watch

from prfaas.api_section import ApiSection


async def test_commands_show_their_key(
    shared_etcd: EtcdServer,
    model_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("PRFAAS_API_KEY", raising=False)
    keys = tmp_path / "keys.toml"
    assert await run("keys", "add", "root", "--role", "admin", "--file", str(keys)) == 0
    admin = capsys.readouterr().out.strip()
    assert await run("keys", "add", "alice", "--file", str(keys)) == 0
    alice = capsys.readouterr().out.strip()
    key_file = tmp_path / "key"
    key_file.write_text(admin + "\n")
    async with World(shared_etcd.endpoint, str(model_path), deployment=uuid4().hex) as world:
        await world.start_engines()
        await world.start_gateway(api=ApiSection(keys_file=str(keys)), key=admin)
        watch(world, monkeypatch)
        assert await run("decisions") == 1
        assert "API key is needed" in capsys.readouterr().err
        with_file = ("--api-key-file", str(key_file))
        assert await run(*with_file, "decisions") == 0
        assert await run(*with_file, "schedule", "pin") == 0
        assert await run(*with_file, "chat", "hi", "--url", world.url) == 0
        assert "b-prefill-0" in capsys.readouterr().out
        monkeypatch.setenv("PRFAAS_API_KEY", alice)
        capsys.readouterr()
        assert await run("schedule", "unpin") == 1
        said = capsys.readouterr().err
        assert "needs one with role admin" in said
        assert alice not in said
        assert await run("chat", "hi", "--url", world.url) == 0
        assert "b-prefill-0" in capsys.readouterr().out
