import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from prfaas.errors import ConfigError, PrfaasError, StateError
from prfaas_cli.chat_stream import ChatAnswer, Routing, send_chat


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"delta": fields, "finish_reason": None}]}


ANSWER: list[dict[str, Any]] = [
    delta(role="assistant", content=""),
    delta(content="Hello"),
    delta(content=" you"),
    {"choices": [{"delta": {}, "finish_reason": "length"}]},
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
]


class Gateway(BaseHTTPRequestHandler):
    """Answers with what the test put here."""

    status: ClassVar[int] = 200
    events: ClassVar[list[dict[str, Any]]] = ANSWER
    asked: ClassVar[dict[str, Any]] = {}

    def do_POST(self) -> None:
        Gateway.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Gateway.asked["path"] = self.path
        self.send_response(self.status)
        self.send_header("x-prfaas-route", "offload")
        self.send_header("x-prfaas-reason", "above_threshold")
        self.send_header("x-prfaas-prefill", "a-prefill-0")
        self.send_header("x-prfaas-prompt-tokens", "900")
        self.end_headers()
        if self.status != 200:
            self.wfile.write(json.dumps({"error": {"message": "too\nlong"}}).encode())
            return
        for event in self.events:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Gateway.status, Gateway.events = 200, ANSWER
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def ask(url: str) -> ChatAnswer:
    return send_chat(url, {"messages": []}, timeout_s=5.0)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_answer_is_read_with_its_route(url: str, suffix: str) -> None:
    answer = ask(url + suffix)
    assert Gateway.asked["path"] == "/v1/chat/completions"
    assert (answer.text, answer.finish_reason) == ("Hello you", "length")
    assert answer.routing == Routing("offload", "above_threshold", "a-prefill-0", 900, None)
    assert answer.usage["completion_tokens"] == 2
    assert answer.ttft_s is not None
    assert 0 < answer.ttft_s <= answer.total_s


def test_an_answer_without_a_token_has_no_ttft(url: str) -> None:
    Gateway.events = ANSWER[:1]
    assert ask(url).ttft_s is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, ConfigError), (413, ConfigError), (429, StateError), (503, StateError)],
)
def test_a_refusal_is_one_line_with_its_reason(
    url: str, status: int, kind: type[PrfaasError]
) -> None:
    Gateway.status = status
    with pytest.raises(
        kind, match=rf"^the gateway refused \({status}, above_threshold\): too long$"
    ):
        ask(url)


def test_a_stream_that_breaks_off_is_an_error(url: str) -> None:
    Gateway.events = [ANSWER[1], {"error": {"message": "decode died"}}]
    with pytest.raises(StateError, match="broke off: decode died"):
        ask(url)


def test_nobody_there_is_an_error_and_a_bad_url_another(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="does not answer"):
        ask("http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="--url"):
        ask("localhost:8080")
