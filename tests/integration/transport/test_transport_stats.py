"""Counters on a Unix socket."""

import socket
from pathlib import Path

import pytest

from prfaas_transport import read_stats, serve_stats


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
