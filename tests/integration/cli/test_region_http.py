import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from prfaas.records import NodeRecord, Role
from prfaas_cli.region_http import registered_nodes, request
from prfaas_netem import Topology, create, inside, remove

pytestmark = pytest.mark.root

NAME = "clihttp"
RECORD = NodeRecord("b-decode-0", Role.DECODE, "b", "http://x", "s1")


class Etcd(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        begin, end = (base64.b64decode(body[key]) for key in ("key", "range_end"))
        assert begin < b"/prfaas/dev/nodes/b-decode-0" < end
        assert not begin < b"/prfaas/dev/policy" < end
        value = base64.b64encode(RECORD.to_json().encode()).decode()
        self.answer({"kvs": [{"value": value}]})

    def do_GET(self) -> None:
        self.answer({"health": "true"} if self.path == "/health" else None)

    def answer(self, value: Any) -> None:
        self.send_response(200 if value else 503)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def region() -> Iterator[tuple[str, tuple[str, int]]]:
    topology = Topology.plan(deployment=NAME)
    create(topology)
    namespace = topology.namespace("b")
    try:
        with inside(namespace):
            server = ThreadingHTTPServer((topology.address("b"), 0), Etcd)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield namespace, (topology.address("b"), server.server_port)
        server.shutdown()
        thread.join()
        server.server_close()
    finally:
        remove(NAME)


def test_a_service_in_a_region_is_asked_from_outside(region: tuple[str, tuple[str, int]]) -> None:
    before = Path("/proc/self/ns/net").stat().st_ino
    assert request(*region, "/health") == {"health": "true"}
    assert request(*region, "/other") is None
    assert registered_nodes(*region, deployment="dev") == {"b-decode-0": RECORD}
    assert Path("/proc/self/ns/net").stat().st_ino == before


def test_nobody_there_and_no_namespace_are_both_no_answer(
    region: tuple[str, tuple[str, int]],
) -> None:
    namespace, (host, port) = region
    assert request(namespace, (host, 1), "/health") is None
    assert request("prfaas-no-such", (host, port), "/health") is None
    assert registered_nodes("prfaas-no-such", (host, port), deployment="dev") is None
