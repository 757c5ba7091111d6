"""`prfaasctl node events` on a real event socket, in a directory that looks like a deployment."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prfaas.cache_events import BlockStored, CacheShape, StateStored
from prfaas_transport.event_socket import EventServer

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "s" / "default"
    directory.mkdir(parents=True)
    (directory / "deployment.json").write_text("{}")
    return directory


@pytest.fixture
def server(directory: Path) -> Iterator[EventServer]:
    server = EventServer(directory / "b-prefill-0.events.sock", CacheShape(stateful=True))
    server.publish([BlockStored((1, 2), (7, 8)), StateStored((2,))])
    yield server
    server.close()


def test_what_a_cache_holds_is_shown(server: EventServer, prfaasctl: Run) -> None:
    done = prfaasctl("node", "events", "b-prefill-0", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["blocks"], found["states"], found["stateful"], found["seq"]) == (2, 1, True, 1)
    shown = prfaasctl("node", "events", "b-prefill-0").stdout
    assert shown.startswith("b-prefill-0: 2 blocks of 1 tokens, 1 states; a prefix is reused at a")


def test_changes_are_followed_as_lines(server: EventServer, prfaasctl: Run) -> None:
    done = prfaasctl("node", "events", "b-prefill-0", "--follow", "0.6")
    assert done.returncode == 0, done.stderr
    (batch,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert batch["snapshot"] is True
    kinds = [event["type"] for event in batch["events"]]
    assert kinds == ["Cleared", "BlockStored", "StateStored"]


def test_a_node_that_publishes_nothing_says_what_to_do(directory: Path, prfaasctl: Run) -> None:
    done = prfaasctl("node", "events", "b-prefill-0", "--json")
    assert done.returncode == 1
    assert "is engine.cache_events on" in json.loads(done.stdout)["error"]
    assert prfaasctl("node", "events", "b-prefill-0", "--follow", "-1").returncode == 2
