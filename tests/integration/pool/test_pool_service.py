"""A real pool service with real processes: shared, killed, restarted, damaged, refused."""

import json
import os
import random
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pool_service import NAMESPACE, PoolProcess, load, page_hashes, right_item, store
from pool_worker import SIZES

from prfaas.blocks.block_layout import KV
from prfaas.blocks.namespace import Namespace
from prfaas_pool.client import PoolClient
from prfaas_pool.connection import RETRY_S
from prfaas_pool.message import LENGTHS

WORKER = Path(__file__).with_name("pool_worker.py")
SUPPORT = Path(__file__).parents[2] / "support"
TOKENS = list(range(60))
CHAIN = NAMESPACE.keys(page_hashes(TOKENS))
PAGES = len(CHAIN) // 16


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PoolProcess]:
    service = PoolProcess(tmp_path, num_bytes=64 * 4096)
    yield service
    service.close()


@pytest.fixture
def client(service: PoolProcess) -> Iterator[PoolClient]:
    client = PoolClient(service.socket)
    yield client
    client.close()


def store_prefix(client: PoolClient) -> None:
    assert store(client, CHAIN, PAGES - 1, group="mamba", size=9000) == 1
    assert store(client, CHAIN, 0, group=KV, size=900) == PAGES


def check_prefix(client: PoolClient) -> None:
    assert client.match(CHAIN, {"mamba": 1}).usable == (PAGES,)
    assert load(client, CHAIN, 0, group=KV, size=900) == PAGES
    assert load(client, CHAIN, PAGES - 1, group="mamba", size=9000) == 1


def test_what_one_process_stores_another_loads(service: PoolProcess, client: PoolClient) -> None:
    store_prefix(client)
    other = PoolClient(service.socket)
    check_prefix(other)
    fork = NAMESPACE.keys(page_hashes([*TOKENS[:40], *range(500, 540)]))
    match = other.match(fork, {})
    assert (match.kv_pages, len(match.usable)) == (10, 10)
    assert other.match(fork, {"mamba": 1}).usable == ()
    other.close()


def test_another_model_layout_or_tenant_sees_nothing(client: PoolClient) -> None:
    store_prefix(client)
    for other in (
        Namespace("m2", "layout"),
        Namespace("model", "l2"),
        Namespace("model", "layout", "t"),
    ):
        assert client.match(other.keys(page_hashes(TOKENS)), {}).kv_pages == 0


def test_a_prefix_survives_a_restart_and_a_kill_of_the_service(
    service: PoolProcess, client: PoolClient
) -> None:
    store_prefix(client)
    for end in (service.stop, service.kill):
        end()
        assert client.match(CHAIN, {}).kv_pages == 0
        service.start()
        time.sleep(RETRY_S)
        check_prefix(client)


def test_state_without_its_kv_matches_when_the_kv_comes(client: PoolClient) -> None:
    store(client, CHAIN, PAGES - 1, group="mamba", size=9000)
    assert client.match(CHAIN, {"mamba": 1}).usable == ()
    store(client, CHAIN, 0, group=KV, size=900)
    assert client.match(CHAIN, {"mamba": 1}).usable == (PAGES,)


def test_a_changed_byte_is_a_miss_and_its_entry_goes(
    service: PoolProcess, client: PoolClient
) -> None:
    store_prefix(client)
    raw = bytearray(service.arena.read_bytes())
    item = right_item(KV, CHAIN[-16:], 900).tobytes()
    at = raw.index(item)
    with service.arena.open("r+b") as file:
        file.seek(at + 500)
        file.write(bytes([raw[at + 500] ^ 1]))
    assert load(client, CHAIN, 0, group=KV, size=900) == PAGES - 1
    assert client.counts.damaged == 1
    assert client.match(CHAIN, {}).kv_pages < PAGES
    assert client.match(CHAIN, {"mamba": 1}).usable == (), "a state whose KV is gone"


def test_a_dead_writers_blocks_are_free_again(service: PoolProcess, client: PoolClient) -> None:
    dying = PoolClient(service.socket)
    question = {"op": "reserve", "group": KV, "first": 0, "item_bytes": 900, "ttl_s": 30}
    dying._connection.ask(question, CHAIN)
    assert client.stats()["prefix_blocks"] > 0
    dying.close()
    deadline = time.monotonic() + 5
    while client.stats()["prefix_blocks"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert client.stats()["free_blocks"] == 64


def test_a_reservation_and_a_lease_end_at_their_time(client: PoolClient) -> None:
    question = {"op": "reserve", "group": KV, "first": 0, "item_bytes": 900, "ttl_s": 0.2}
    answer, _ = client._connection.ask(question, CHAIN)
    time.sleep(0.25)
    digests = b"\0" * 8 * PAGES
    done, _ = client._connection.ask({"op": "commit", "id": answer["id"]}, digests)
    assert done["over"]
    assert client.stats()["free_blocks"] == 64


def test_a_full_pool_keeps_what_is_used_and_stays_right(client: PoolClient) -> None:
    store_prefix(client)
    for n in range(40):
        other = NAMESPACE.keys(page_hashes([1000 + n] * 60))
        store(client, other, 0, group=KV, size=900)
        load(client, other, 0, group=KV, size=900)
        check_prefix(client)
    stats = client.stats()
    assert stats["evicted"] > 0
    assert stats["prefix_blocks"] <= 64


def test_only_this_user_may_use_it(service: PoolProcess) -> None:
    for path in (service.socket, service.arena):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_service_on_the_same_arena_is_refused(service: PoolProcess) -> None:
    second = subprocess.run(
        service.command, capture_output=True, text=True, timeout=20, check=False
    )
    assert second.returncode != 0
    assert "another pool service has it" in second.stderr


def test_figures_can_be_printed(service: PoolProcess, client: PoolClient) -> None:
    store_prefix(client)
    command = [sys.executable, "-m", "prfaas_pool", "--socket", str(service.socket), "--stats"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert json.loads(printed.stdout)["entries"] > 0


def test_a_pool_larger_than_its_file_system_is_refused_at_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "prfaas_pool", "--arena", f"/dev/shm/pool-{os.getpid()}"]
    command += ["--socket", str(tmp_path / "s"), "--bytes", str(1 << 43)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    finally:
        Path(f"/dev/shm/pool-{os.getpid()}").unlink(missing_ok=True)
    assert ended.returncode == 3
    assert "error: pool arena" in ended.stderr


def test_a_hostile_client_loses_its_connection_and_nobody_else(
    service: PoolProcess, client: PoolClient
) -> None:
    store_prefix(client)
    for raw in (
        LENGTHS.pack(1 << 30, 0),
        LENGTHS.pack(3, 0) + b"[1]",
        LENGTHS.pack(2, 0) + b"{}",
        LENGTHS.pack(14, 5) + b'{"op":"match"}' + b"12345",
        LENGTHS.pack(13, 16) + b'{"op":"read"}' + bytes(16),
        LENGTHS.pack(13, 0) + b'{"op":"hello"',
        LENGTHS.pack(50, 0) + b"half",
    ):
        with socket.socket(socket.AF_UNIX) as hostile:
            hostile.settimeout(5)
            hostile.connect(str(service.socket))
            hostile.sendall(raw)
            hostile.shutdown(socket.SHUT_WR)
            assert hostile.recv(65536) == b""
        check_prefix(client)


def test_killed_processes_never_leave_a_wrong_item(tmp_path: Path) -> None:
    """Workers and service are killed at random; whatever is found afterwards is right."""
    rng = random.Random(7)
    service = PoolProcess(tmp_path, num_bytes=48 * 4096)
    env = os.environ | {"PYTHONPATH": str(SUPPORT)}
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for seed in range(14):
            command = [sys.executable, str(WORKER), str(service.socket), str(seed)]
            workers.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE))
            if len(workers) < 3:
                continue
            time.sleep(rng.uniform(0.05, 0.3))
            victim = workers.pop(rng.randrange(len(workers)))
            victim.kill()
            _end(victim)
            if seed % 4 == 0:
                service.kill()
                service.start()
        workers[0].stdout.readline()
    finally:
        for worker in workers:
            assert worker.poll() is None, f"a worker ended with {worker.poll()}: wrong bytes"
            worker.kill()
            _end(worker)
    service.kill()
    service.start()
    client = PoolClient(service.socket)
    _check_everything(client)
    deadline = time.monotonic() + 5
    while client.stats()["holds"] and time.monotonic() < deadline:
        time.sleep(0.05)
    stats = client.stats()
    assert (stats["holds"], stats["transfer_blocks"]) == (0, 0)
    assert stats["restored"] > 0
    assert client.counts.damaged == 0
    client.close()
    service.close()


def _check_everything(client: PoolClient) -> None:
    loaded = 0
    for first in range(3):
        for second in range(3):
            for stem in range(1, 7):
                for rest in range(7):
                    tokens = [first] * (4 * stem) + [second] * (4 * rest)
                    chain = NAMESPACE.keys(page_hashes(tokens))
                    loaded += load(client, chain, 0, group=KV, size=SIZES["kv"])
                    load(client, chain, len(chain) // 16 - 1, group="mamba", size=SIZES["mamba"])
    assert loaded


def _end(worker: "subprocess.Popen[bytes]") -> None:
    worker.wait(10)
    assert worker.stdout is not None
    worker.stdout.close()


def test_bytes_are_what_they_were(client: PoolClient) -> None:
    """An item as large as several blocks comes back byte for byte."""
    assert store(client, CHAIN, 0, group=KV, size=10000) == PAGES
    got = {}
    client.load(CHAIN, 3, group=KV, item_bytes=10000, take=lambda at, data: got.update({at: data}))
    assert sorted(got) == list(range(3, PAGES))
    assert np.array_equal(got[5], right_item(KV, CHAIN[80:96], 10000))
