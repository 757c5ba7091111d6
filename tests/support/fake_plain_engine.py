"""An HTTP server that answers as one plain SGLang server does, and takes as long as it is told.

Prefills run one after the other; a decode step of a batch serves all its streams.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 256,
}
#: 2 layers, K and V of 2 heads of 16 elements of 2 bytes.
KV_BYTES_PER_TOKEN = 2 * 2 * 2 * 16 * 2


@dataclass
class PlainEngine:
    """What the server is and does; `requests` are the bodies it got."""

    model_path: str
    prefill_base_s: float = 0.01
    prefill_per_token_s: float = 2e-5
    step_base_s: float = 0.004
    step_per_stream_s: float = 0.002
    at_once: int = 64
    cached_share: float = 0.0
    fail_after: int = 1 << 30
    failure: str = "reset"
    model_info: Json = field(default_factory=dict)
    server_info: Json = field(default_factory=dict)
    requests: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._prefilling = threading.Lock()
        self._slots = threading.Semaphore(self.at_once)
        self._decoding = 0
        engine = self

        class Handler(_Handler):
            served = engine

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> "PlainEngine":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def prefill_s(self, tokens: int) -> float:
        """The true T_prefill."""
        return self.prefill_base_s + self.prefill_per_token_s * tokens

    def step_s(self, batch: int) -> float:
        """The true decode step."""
        return self.step_base_s + self.step_per_stream_s * batch

    def answer(self, path: str) -> Json | None:
        """What a GET returns."""
        if path == "/model_info":
            known = {"model_path": self.model_path, "served_model_name": "fake"}
            return known | {"disaggregation_mode": "null"} | self.model_info
        if path == "/server_info":
            known = {"version": "0.5.23", "tp_size": 2, "device": "cuda", "dtype": "bfloat16"}
            known |= {"max_req_input_len": 4090, "max_running_requests": 16}
            return known | {"max_total_num_tokens": 65536} | self.server_info
        return None

    def tokens(self, body: Json) -> Any:
        """Yield an event per token, when it is due."""
        with self._slots:
            with self._prefilling:
                time.sleep(self.prefill_s(len(body["input_ids"])))
            self._decoding += 1
            try:
                for count in range(1, body["sampling_params"]["max_new_tokens"] + 1):
                    if count > 1:
                        with self._prefilling:
                            pass
                        time.sleep(self.step_s(self._decoding))
                    cached = int(self.cached_share * len(body["input_ids"]))
                    yield {"meta_info": {"completion_tokens": count, "cached_tokens": cached}}
            finally:
                self._decoding -= 1


class _Handler(BaseHTTPRequestHandler):
    served: PlainEngine
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        answer = self.served.answer(self.path)
        self._whole(404 if answer is None else 200, answer or {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.served.requests.append(body)
        if len(self.served.requests) > self.served.fail_after:
            self._fail()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for event in self.served.tokens(body):
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass  # The client went away.

    def _fail(self) -> None:
        if self.served.failure == "reset":
            self.close_connection = True
        else:
            self._whole(400, {"error": {"message": self.served.failure}})

    def _whole(self, status: int, value: Json) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
