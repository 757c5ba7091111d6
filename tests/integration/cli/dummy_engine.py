"""An engine as a node agent sees one: answers /health, /server_info and /v1/loads, ends on SIGTERM.

It changes its role when asked to, unless a file `busy` or `breaks` in its directory says true.
"""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import resource_tracker
from pathlib import Path

INFO = {"context_length": 2048, "chunked_prefill_size": 512, "max_running_requests": 4}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path in ("/health", "/server_info", "/v1/loads")
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(json.dumps(load() if self.path == "/v1/loads" else INFO).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        busy, breaks = (flag(name) for name in ("busy", "breaks"))
        message = "instance is not idle; drain all requests before switching" if busy else "boom"
        done = not busy and not breaks
        answer = {"success": done, "message": message, "safe_to_restore": busy}
        self.send_response(200 if done else 400)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


def load() -> dict[str, object]:
    counts = {"prefill_inflight_queue_reqs": int(flag("busy"))}
    return {"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0, "disaggregation": counts}]}


def flag(name: str) -> bool:
    path = Path(name)
    return path.exists() and path.read_text() == "true"


def fork_worker() -> None:
    """Start a child as a fork server's engine has: nothing tells it from its parent but its id.

    Nobody here notices its end.
    """
    if os.fork() == 0:
        signal.pause()


def start_others() -> None:
    """Start what an engine has besides: multiprocessing's helper, and some other program."""
    resource_tracker.ensure_running()
    subprocess.Popen(["sleep", "60"])


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--fail" in arguments:
        raise SystemExit("this engine cannot start")
    address = (
        arguments[arguments.index("--host") + 1],
        int(arguments[arguments.index("--port") + 1]),
    )
    fork_worker()
    start_others()
    ThreadingHTTPServer(address, Handler).serve_forever()
