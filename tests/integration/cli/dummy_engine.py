"""An engine as a node agent sees one: answers /health and /server_info, ends on SIGTERM."""

import ctypes
import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

INFO = {"context_length": 2048, "chunked_prefill_size": 512, "max_running_requests": 4}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path in ("/health", "/server_info")
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(json.dumps(INFO).encode())


def fork_worker() -> None:
    """Start a child with the name of an SGLang scheduler, whose end nobody here notices."""
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"sglang::scheduler", 0, 0, 0)  # PR_SET_NAME
        signal.pause()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--fail" in arguments:
        raise SystemExit("this engine cannot start")
    address = (
        arguments[arguments.index("--host") + 1],
        int(arguments[arguments.index("--port") + 1]),
    )
    fork_worker()
    ThreadingHTTPServer(address, Handler).serve_forever()
