import contextlib
import json
import select
import socket
import threading

import pytest

from prfaas.errors import ConfigError, StateError
from prfaas_netem.backend import choose
from prfaas_netem.client import set_link, show
from prfaas_netem.control import ControlServer
from prfaas_netem.emulator import Emulator
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.topology import Topology


class RecordingBackend:
    """A link that only remembers."""

    name = "nfqueue"

    def __init__(self):
        self.applied = []

    def apply(self, direction, spec):
        self.applied.append((direction.source, direction.target, spec))

    def report(self, direction):
        return {"mode": "gso", "packets": 1}

    def queues(self):
        return ()

    def serve(self, ready):
        return None

    def close(self):
        pass


@pytest.fixture
def backend():
    return RecordingBackend()


@pytest.fixture
def control(tmp_path, backend):
    path = tmp_path / "control"
    server = ControlServer(path, Emulator(Topology.plan(), backend).handle)
    stop_here, stop_there = socket.socketpair()

    def run():
        while True:
            ready, _, _ = select.select([*server.sockets(), stop_here], (), ())
            if stop_here in ready:
                return
            for each in ready:
                server.serve(each)

    thread = threading.Thread(target=run)
    thread.start()
    yield path
    stop_there.send(b"x")
    thread.join()
    server.close()
    stop_here.close()
    stop_there.close()
    assert not path.exists()


def raw(path, line):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(path))
        connection.sendall(line)
        with connection.makefile("rb") as stream:
            return stream.read()


def test_show(control):
    answer = show(control)
    assert (answer["backend"], answer["mode"], answer["deployment"]) == (
        "nfqueue",
        "gso",
        "default",
    )
    assert [(each["from"], each["to"]) for each in answer["directions"]] == [("a", "b"), ("b", "a")]
    assert LinkSpec.from_json(answer["directions"][0]["spec"]) == LinkSpec.default()


def test_set_both_ways(control, backend):
    spec = LinkSpec.parse(rtt="40ms")
    answer = set_link(control, spec)
    assert backend.applied == [("a", "b", spec), ("b", "a", spec)]
    assert [each["spec"] for each in answer["directions"]] == [spec.to_json()] * 2


def test_set_one_way(control, backend):
    spec = LinkSpec.parse(loss="1%")
    set_link(control, spec, source="b", target="a")
    assert backend.applied == [("b", "a", spec)]


def test_some_fields_keep_the_rest(control, backend):
    answer = json.loads(raw(control, b'{"op": "set", "link": {"loss": 0.5}}\n'))
    assert answer["ok"]
    assert backend.applied[0][2] == LinkSpec(loss=0.5)


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"\xff\n",
        b"[]\n",
        b'{"op": "go"}\n',
        b'{"op": "set"}\n',
        b'{"op": "set", "link": {"loss": 2}}\n',
        b'{"op": "set", "link": {"loss": null}}\n',
        b'{"op": "set", "link": {}, "from": "c"}\n',
        b'{"op": "set", "link": {}, "from": ["a"]}\n',
        b'{"op": "set", "link": {}, "from": "a", "to": "a"}\n',
    ],
)
def test_a_wrong_request_is_answered_and_changes_nothing(control, backend, line):
    answer = json.loads(raw(control, line))
    assert not answer["ok"]
    assert answer["error"]
    assert backend.applied == []


def test_a_caller_that_leaves_or_floods_does_no_harm(control):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(control))
        connection.send(b"{")
    with contextlib.suppress(ConnectionError):
        assert b"allowed: 65536 bytes" in raw(control, b"x" * 100_000)
    assert show(control)["backend"] == "nfqueue"


def test_silent_callers_do_not_keep_others_out(control):
    callers = [socket.socket(socket.AF_UNIX) for _ in range(17)]
    try:
        for each in callers:
            each.connect(str(control))
        callers[0].settimeout(5)
        assert b"too many callers" in callers[0].recv(1000)
        assert show(control)["backend"] == "nfqueue"
    finally:
        for each in callers:
            each.close()


def test_refusal_reaches_the_client_as_an_error(control):
    with pytest.raises(ConfigError, match="no region 'c'"):
        set_link(control, LinkSpec(), source="c")


def test_nobody_answers(tmp_path):
    with pytest.raises(StateError, match=r"no link emulator answers at .*none"):
        show(tmp_path / "none")


def test_path_in_use_and_path_left_over(control, tmp_path):
    with pytest.raises(StateError, match="another process serves"):
        ControlServer(control, dict)
    stale = tmp_path / "stale"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(stale))
    ControlServer(stale, dict).close()


def test_wrong_paths(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="not a socket"):
        ControlServer(tmp_path / "file", dict)
    with pytest.raises(ConfigError, match="allowed: 107"):
        ControlServer(tmp_path / ("x" * 108), dict)
    with pytest.raises(ConfigError, match="cannot serve"):
        ControlServer(tmp_path / "no" / "x", dict)


def test_unknown_backend():
    with pytest.raises(ConfigError, match="allowed: auto, kernel, nfqueue"):
        choose("magic")
