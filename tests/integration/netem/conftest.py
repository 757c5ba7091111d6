import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from prfaas_netem import regions
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.topology import Topology

_numbers = itertools.count(1)


class Emulator:
    """A link emulator process that a test starts, kills and restarts."""

    def __init__(self, topology, folder, backend="auto"):
        self.topology = topology
        self.control = folder / "control"
        self.backend = backend
        self.ready = None
        self._file = folder / "topology.json"
        self._process = None

    def start(self):
        self.topology.save(self._file)
        argv = [sys.executable, "-m", "prfaas_netem.link", "--backend", self.backend]
        argv += ["--topology", str(self._file), "--control", str(self.control)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.ready = json.loads(self._process.stdout.readline())
        return self

    @property
    def pid(self):
        return self._process.pid

    def kill(self):
        self._process.kill()
        return self._reap()

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self):
        self._process.stdout.close()
        return self._process.wait(10)


@contextlib.contextmanager
def deployed(topology, folder, backend):
    """Regions with a running emulator of their own, all gone afterwards."""
    topology = replace(topology, deployment=f"t{os.getpid()}n{next(_numbers)}")
    emulator = Emulator(topology, folder, backend)
    try:
        regions.create(topology)
        yield emulator.start()
    finally:
        if emulator._process is not None and emulator._process.returncode is None:
            emulator.stop()
        regions.remove(topology)


@pytest.fixture
def deploy(tmp_path):
    """Deploy regions with a link; give the emulator."""
    with contextlib.ExitStack() as stack:

        def make(link=None, *, backend="auto", topology=None, ways=(), seed=None):
            plan = topology or Topology(link=link or LinkSpec.default(), ways=ways, seed=seed)
            return stack.enter_context(deployed(plan, tmp_path, backend))

        yield make


@pytest.fixture
def topology():
    """A topology of a deployment that does not exist yet, removed afterwards."""
    plan = Topology.plan(deployment=f"t{os.getpid()}n{next(_numbers)}")
    try:
        yield plan
    finally:
        regions.remove(plan)
