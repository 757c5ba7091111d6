"""A deployment onto machines, asked by commands that look at emulated regions."""

import json
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NAME = ("--name", "clitest")


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    directory = tmp_path / "s" / "clitest"
    directory.mkdir(parents=True)
    file = directory / "deployment.json"
    file.write_text('{"inventory": "/machines.yml", "options": {"regions": ["a", "b"]}}')
    return file


@pytest.mark.parametrize(
    "words",
    [("status",), ("chat", "Hi"), ("decisions",), ("top", "--once"), ("link", "show")],
    ids=" ".join,
)
def test_nobody_is_told_to_destroy_it(prfaasctl: Run, deployed: Path, words: list[str]) -> None:
    done = prfaasctl(*words, *NAME)
    assert done.returncode == 1, done.stderr
    assert "clitest is deployed onto machines" in done.stderr
    assert "destroy" not in done.stderr
    assert deployed.exists()


def test_its_gateway_is_asked_by_url_for_whatever_model_it_has(
    prfaasctl: Run, deployed: Path
) -> None:
    asked: list[dict[str, object]] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            event = {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "length"}]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n")

    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        Thread(target=server.handle_request).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = prfaasctl("chat", "Hi", "--url", url, *NAME)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Hello")
    assert "model" not in asked[0]
    assert deployed.exists()
