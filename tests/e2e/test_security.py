"""Two regions with `--security mtls`: the right tokens, and nothing to read on the link."""

import http.client
import json
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from deployment import Answer, Deployment, deployed
from packet_tap import PacketTap
from prompts import token_prompts
from sglang_engines import EngineStarter, generate

from prfaas_cli.place import Place
from prfaas_netem import Topology, inside
from prfaas_transport.tls_context import TlsContexts, TlsFiles

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(600)]

TOKENS = 8
MODEL = "qwen3-next-tiny"
PROMPT = token_prompts()[16]
#: What a frame, a request and a name look like; the first request asks for everything.
WORDS = (b"POST /generate", b"GET /route", b"HTTP/1.1", b"PF\x02\x01", b"PF\x02\x05")
NAMES = (b"a-prefill-0", b"b-decode-0")
IN_PROMPT = ",".join(map(str, PROMPT[:9])).encode()
#: Of the KV cache, in the middle of the link's packets.
SAMPLE_BYTES = 48
HEARTBEATS_S = 6
"""A decode asks every prefill whether it is there, every five seconds."""


@contextmanager
def tapped(regions: Deployment) -> Iterator[PacketTap]:
    tap = PacketTap(Topology.plan(deployment=regions.name), "b")
    try:
        yield tap
    finally:
        tap.close()


def ask(regions: Deployment) -> Answer:
    answer = regions.generate(PROMPT, tokens=TOKENS)
    assert answer.status == 200, answer.body
    assert answer.route == "offload"
    return answer


def kv_samples(tap: PacketTap) -> list[bytes]:
    """Return pieces of the packets that region a sent most in: they hold the KV cache."""
    large = [packet for packet in tap.packets if len(packet) > 1200]
    samples = [p[at : at + SAMPLE_BYTES] for p in large for at in range(600, len(p) - 600, 600)]
    return [sample for sample in samples if len(set(sample)) > 16]


def test_tokens_are_right_and_the_link_shows_nothing(
    models_dir: Path, deployment_name: str, tmp_path: Path
) -> None:
    model = models_dir / MODEL
    threshold = ("--threshold", "512")
    first = Deployment(deployment_name, tmp_path, model)
    with deployed(first, *threshold) as regions, tapped(regions) as open_link:
        plain_answer = ask(regions)
    for word in (*WORDS, *NAMES, IN_PROMPT):
        assert open_link.count(word), f"the tap does not see {word!r}, which is there"
    samples = kv_samples(open_link)
    assert len(samples) > 100

    secured = Deployment(f"{deployment_name}s", tmp_path, model)
    with deployed(secured, *threshold, "--security", "mtls") as regions:
        starter = EngineStarter(regions.directory / "fork.sock", tmp_path)
        with starter.running(plain := starter.start(model, name="plain")):
            expected = generate(plain.url, PROMPT, tokens=TOKENS)
        with tapped(regions) as closed_link:
            answer = ask(regions)
            time.sleep(HEARTBEATS_S)
        assert_secured(regions)
    assert answer.json["output_ids"] == plain_answer.json["output_ids"] == expected
    assert closed_link.num_bytes > open_link.num_bytes * 0.9
    for word in (*WORDS, *NAMES, IN_PROMPT, *samples):
        assert not closed_link.count(word), word


def assert_secured(regions: Deployment) -> None:
    for node in ("a-prefill-0", "b-decode-0"):
        security = regions.stats(node)["security"]
        assert security["mode"] == "mtls"
        assert security["handshakes_total"] >= 4
        assert security["lanes_refused_total"] == {}
    for path in regions.directory.rglob("*.key"):
        assert path.stat().st_mode & 0o077 == 0
    log = (regions.directory / "logs" / "b-decode-0.engine.log").read_text()
    assert "Attempting to reconnect" not in log
    assert listeners(regions, "a") == {"agent": 3, "lanes": 1, "rendezvous": 1}
    assert_seen(regions)


def assert_seen(regions: Deployment) -> None:
    """Check that the link's signals reach the gateway, and a stranger sees no metrics."""
    status = json.loads(regions.ctl("status", "--json").stdout)
    link = status["links"]["a"]
    assert not link["is_stale"], link
    assert link["signal"]["up"]
    assert link["available_bytes_per_s"] > 0
    url = urlsplit(status["nodes"]["a-prefill-0"]["agent_url"])
    assert (url.scheme, url.port) == ("https", 31000)
    folder = Place(regions.state_dir, regions.name).certificates
    files = TlsFiles(folder / "ca.crt", folder / "operator.crt", folder / "operator.key")
    contexts = TlsContexts(files)
    with inside(Topology.plan(deployment=regions.name).namespace("a")):
        for tls, sees in ((contexts.http_client(), True), (None, False)):
            assert sees == (b"prfaas_transfer_rooms_total" in scrape(url.netloc, tls))


def scrape(address: str, tls: ssl.SSLContext | None) -> bytes:
    """Return what /metrics answers; without a certificate there is nothing."""
    stranger = ssl.create_default_context()
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, timeout=10, context=tls or stranger)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    except OSError:
        return b""
    finally:
        connection.close()


def listeners(regions: Deployment, region: str) -> dict[str, int]:
    """Return what other regions could connect to, by what it is."""
    with inside(Topology.plan(deployment=regions.name).namespace(region)):
        rows = [
            line.split()
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/thread-self/net/{name}").read_text().splitlines()[1:]
        ]
    is_listening, loopback = "0A", "0100007F"
    addresses = [row[1].split(":") for row in rows if row[3] == is_listening]
    ports = [int(port, 16) for host, port in addresses if host != loopback]
    kinds = {30000: "agent", 30500: "agent", 31000: "agent", 25000: "rendezvous"}
    return dict(Counter(kinds.get(port, "lanes") for port in ports))
