"""Counters on a Unix socket."""

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from transport_rig import until

from prfaas_transport import StatsServer, read_stats, serve_stats, stats_reader
from prfaas_transport.stats_socket import MAX_STREAMS


def test_one_json_line_per_connection(tmp_path: Path) -> None:
    path = tmp_path / "stats.sock"
    server = serve_stats(path, lambda: {"rooms_sent_total": 3})
    try:
        assert read_stats(path) == {"rooms_sent_total": 3}
        assert read_stats(str(path), timeout_s=2.0) == {"rooms_sent_total": 3}
    finally:
        server.close()
        server.close()
    assert not path.exists()
    with pytest.raises(OSError):
        read_stats(path)


def test_stale_file_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "stats.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = serve_stats(path, dict)
    try:
        with pytest.raises(OSError):
            serve_stats(path, dict)
        assert read_stats(path) == {}
    finally:
        server.close()


def test_failing_callable_does_not_end_the_service(tmp_path: Path) -> None:
    answers = iter([RuntimeError("no"), {"ok": 1}])

    def read() -> dict[str, int]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    server = serve_stats(tmp_path / "s", read)
    try:
        with pytest.raises(ValueError):
            read_stats(tmp_path / "s")
        assert read_stats(tmp_path / "s") == {"ok": 1}
    finally:
        server.close()


def connect(path: Path, request: bytes = b"") -> socket.socket:
    reader = socket.socket(socket.AF_UNIX)
    reader.settimeout(5)
    reader.connect(str(path))
    reader.sendall(request)
    return reader


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StatsServer]:
    numbers = itertools.count()
    server = serve_stats(tmp_path / "s", lambda: {"number": next(numbers), "pad": "x" * PAD_BYTES})
    yield server
    server.close()


PAD_BYTES = 1 << 20


def lines(reader: socket.socket, count: int) -> list[float]:
    """Return when so many lines were there, and check that each is whole."""
    times = []
    with reader.makefile("rb") as file:
        for _ in range(count):
            assert len(json.loads(file.readline())["pad"]) == PAD_BYTES
            times.append(time.monotonic())
    return times


def test_a_stream_brings_a_line_every_period_and_ends_with_its_reader(
    server: StatsServer, tmp_path: Path
) -> None:
    with connect(tmp_path / "s", b'{"stream": 100}\n') as reader:
        times = lines(reader, 6)
    assert 0.3 < times[-1] - times[0] < 2.0
    until(lambda: not server._readers)


def test_who_says_nothing_gets_one_whole_line_soon(server: StatsServer, tmp_path: Path) -> None:
    began_s = time.monotonic()
    with connect(tmp_path / "s") as reader, reader.makefile("rb") as file:
        assert file.read().count(b"\n") == 1
    assert time.monotonic() - began_s < 1.0
    assert len(read_stats(tmp_path / "s", timeout_s=5)["pad"]) == PAD_BYTES


@pytest.mark.parametrize(
    "request_line",
    [
        b'{"stream": 99}\n',
        b'{"stream": 5001}\n',
        b'{"stream": 200.5}\n',
        b'{"stream": true}\n',
        b'{"stream": 200, "x": 1}\n',
        b'{"stream": 200}\nmore',
        b"[]\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * 300,
    ],
)
def test_what_is_no_request_ends_the_connection(
    server: StatsServer, tmp_path: Path, request_line: bytes
) -> None:
    with connect(tmp_path / "s", request_line) as reader, contextlib.suppress(ConnectionResetError):
        assert reader.recv(100) == b""
    assert "number" in read_stats(tmp_path / "s", timeout_s=5)


def test_a_reader_that_does_not_read_is_dropped_and_costs_others_nothing(
    server: StatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats_reader, "STALL_S", 0.5)
    with (
        connect(tmp_path / "s", b'{"stream": 100}\n') as stalled,
        connect(tmp_path / "s", b'{"stream": 100}\n') as reader,
    ):
        times = lines(reader, 12)  # a second, and more than STALL_S
        gaps_s = [after - before for before, after in itertools.pairwise(times)]
        assert max(gaps_s) < 1.5
        until(lambda: len(server._readers) == 1)
        with contextlib.suppress(ConnectionResetError):
            while stalled.recv(1 << 20):
                pass


def test_the_number_of_streams_is_bounded(server: StatsServer, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_STREAMS):
            stack.enter_context(connect(tmp_path / "s", b'{"stream": 5000}\n'))
        until(lambda: sum(r.is_stream for r in server._readers.values()) == MAX_STREAMS)
        with connect(tmp_path / "s", b'{"stream": 5000}\n') as one_more:
            assert one_more.recv(100) == b""
        assert "number" in read_stats(tmp_path / "s", timeout_s=5)


def test_a_hundred_readers_leave_nothing_behind(server: StatsServer, tmp_path: Path) -> None:
    def held() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    before = held()
    for number in range(100):
        time.sleep(0.002)  # this process is the server as well
        connect(tmp_path / "s", (b"", b'{"stream": 100}\n', b"{")[number % 3]).close()
    # The last one may still wait to be accepted, so no reader now does not mean that none comes.
    until(lambda: held() == before)


def test_streams_read_slow_counters_less_often(tmp_path: Path) -> None:
    reads = 0

    def read() -> dict[str, int]:
        nonlocal reads
        reads += 1
        time.sleep(0.05)
        return {"pad": 1}

    server = serve_stats(tmp_path / "slow", read)
    try:
        with (
            connect(tmp_path / "slow", b'{"stream": 100}\n') as reader,
            reader.makefile("rb") as file,
        ):
            for _ in range(8):
                file.readline()
        assert reads == 1
    finally:
        server.close()
