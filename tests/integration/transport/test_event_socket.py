import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from prfaas.cache_events import BlockStored, CacheShape, Cleared, StateStored, encode_cursor
from prfaas.cache_events.codec import Cursor
from prfaas.errors import ProtocolError
from prfaas_transport import event_socket
from prfaas_transport.event_socket import EventReader, EventServer

SHAPE = CacheShape(stateful=True)
QUIET_S = 0.1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.sock"


@pytest.fixture
def server(path: Path) -> Iterator[EventServer]:
    server = EventServer(path, SHAPE)
    yield server
    server.close()


@pytest.fixture
def reader(path: Path) -> Iterator[EventReader]:
    reader = EventReader(path)
    yield reader
    reader.close()


def block(name: int) -> BlockStored:
    return BlockStored((name,), (name,))


def caught_up(reader: EventReader) -> list[bool]:
    """Read what there is; return for every batch whether it is of a snapshot."""
    return [batch.snapshot for batch in reader.catch_up(quiet_s=QUIET_S)]


def test_a_reader_begins_with_a_snapshot_and_follows(
    server: EventServer, reader: EventReader
) -> None:
    server.publish([block(1), StateStored((1,))])
    reader.connect()
    assert caught_up(reader) == [True]
    assert (reader.mirror.shape, reader.mirror.reusable_tokens([1, 2])) == (SHAPE, 1)
    server.publish([Cleared()])
    server.publish([block(3)])
    assert caught_up(reader) == [False, False]
    assert reader.mirror.num_blocks == 1


def test_a_reader_that_comes_back_gets_what_it_missed(
    server: EventServer, reader: EventReader
) -> None:
    reader.connect()
    caught_up(reader)
    reader.close()
    for name in range(1, 4):
        server.publish([block(name)])
    reader.connect()
    assert caught_up(reader) == [False, False, False]
    assert reader.mirror.num_blocks == 3


def test_a_reader_that_comes_back_too_late_gets_a_snapshot(
    server: EventServer, reader: EventReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    server._log._limit = 10
    reader.connect()
    caught_up(reader)
    reader.close()
    for name in range(1, 30):
        server.publish([block(name)])
    reader.connect()
    assert caught_up(reader) == [True]
    assert reader.mirror.num_blocks == 29


def test_another_life_of_the_publisher_begins_anew(
    server: EventServer, reader: EventReader, path: Path
) -> None:
    server.publish([block(1)])
    reader.connect()
    caught_up(reader)
    server.close()
    with pytest.raises(ConnectionResetError):
        reader.next_batch()
    again = EventServer(path, SHAPE)
    again.publish([block(7)])
    reader.connect()
    assert caught_up(reader) == [True]
    assert reader.mirror.matched([7]) == [7]
    assert reader.mirror.matched([1]) == []
    again.close()
    assert not path.exists()


def test_a_slow_reader_holds_nobody_up_and_is_brought_up_to_date(
    server: EventServer, reader: EventReader
) -> None:
    server._log._limit = 5000
    reader.connect()
    began_s = time.monotonic()
    for start in range(0, 80_000, 4000):
        names = tuple(range(start, start + 4000))
        server.publish([Cleared(), BlockStored(names, names)])
    # Nothing was read meanwhile, and far more was told than sockets hold.
    assert time.monotonic() - began_s < event_socket.READER_TIMEOUT_S
    kinds = caught_up(reader)
    assert True in kinds
    assert reader.mirror.matched([76_000]) == [76_000]
    assert reader.mirror.num_blocks == 4000


def test_nonsense_and_silence_end_only_their_own_connection(
    server: EventServer, reader: EventReader, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_socket, "READER_TIMEOUT_S", 0.2)
    reader.connect()
    for nonsense in (b"{}\n", b"x" * 5000, b""):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.settimeout(5)
            stranger.connect(str(path))
            stranger.sendall(nonsense)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    server.publish([block(1)])
    assert caught_up(reader)[-1] is False


def test_too_many_readers_are_turned_away(server: EventServer, path: Path) -> None:
    readers = [EventReader(path) for _ in range(event_socket.MAX_READERS)]
    for reader in readers:
        reader.connect()
    one_more = EventReader(path)
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        one_more.connect()
    for reader in readers:
        reader.close()


def test_a_batch_that_was_left_out_is_noticed(reader: EventReader, path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        shape = b'{"version":1,"block_tokens":1,"stateful":false,"window_tokens":0}\n'
        lines = [b'{"session":"s","seq":%d,"events":[]}\n' % seq for seq in (1, 3)]
        snapshot = b'{"session":"s","seq":0,"snapshot":true,"more":false,"events":[]}\n'
        with_reader = [shape, snapshot, *lines]

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(512) == encode_cursor(Cursor())
                connection.sendall(b"".join(with_reader))
                connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        reader.connect()
        reader.next_batch()
        reader.next_batch()
        with pytest.raises(ProtocolError, match="batch 3 after 1"):
            reader.next_batch()
        reader.close()
        thread.join()
