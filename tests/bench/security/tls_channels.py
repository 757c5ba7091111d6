"""What TLS costs on a lane: CPU seconds per GB at either end, beside plain and OpenSSL's own speed.

    python tests/bench/security/tls_channels.py [GB]

One lane over loopback, scattered 64 KiB pages on both sides, each end a process of its own; the
best of three rounds. The last line says how much of what TLS adds is the cipher.
"""

import os
import random
import re
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from certificates import Certificates

from prfaas_transport.channel import Channel, ChannelFactory, PlainChannels
from prfaas_transport.tls import TlsChannels

PAGE_BYTES = 64 << 10
NUM_PAGES = 4096
PAGES_PER_CALL = 16
ROUNDS = 3

Figures = tuple[float, float, float]


def pages(memory: memoryview, seed: int) -> Callable[[], list[memoryview]]:
    """Return what gives the next pages, scattered over memory."""
    rng = random.Random(seed)

    def take() -> list[memoryview]:
        starts = [rng.randrange(NUM_PAGES) * PAGE_BYTES for _ in range(PAGES_PER_CALL)]
        return [memory[start : start + PAGE_BYTES] for start in starts]

    return take


def shake(channel: Channel) -> None:
    while not channel.handshake(time.monotonic()):
        select.select([channel.fileno()], [], [])


def move(
    channel: Channel, total: int, call: Callable[[list[memoryview]], int], *, out: bool
) -> None:
    """Move `total` bytes through the channel."""
    take, left = pages(memoryview(bytearray(os.urandom(1 << 20) * (NUM_PAGES // 16))), 1), total
    views = take()
    while left > 0:
        try:
            count = call(views)
        except BlockingIOError:
            wait(channel, out=out)
            continue
        if not count:
            break
        left -= count
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if count:
            views[0] = views[0][count:]
        views = views or take()
    while out and channel.wants_write():
        wait(channel, out=True)
        channel.send([])


def wait(channel: Channel, *, out: bool) -> None:
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLOUT if out else select.POLLIN)
    poll.poll()


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(client: ChannelFactory, server: ChannelFactory, total: int) -> Figures:
    """Return GB/s, and the CPU seconds per GB of the sending and the receiving process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        back, forth = os.pipe()
        if not os.fork():
            channel = client.wrap(connect(listener.getsockname()), server_side=False)
            shake(channel)
            before = cpu_s()
            move(channel, total, channel.send, out=True)
            os.write(forth, f"{cpu_s() - before}".encode())
            os._exit(0)
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    channel = server.wrap(accepted, server_side=True)
    shake(channel)
    before, began_s = cpu_s(), time.monotonic()
    move(channel, total, channel.receive_into, out=False)
    took_s, received_s = time.monotonic() - began_s, cpu_s() - before
    sent_s = float(os.read(back, 99))
    channel.close()
    os.wait()
    return total / 1e9 / took_s, sent_s / (total / 1e9), received_s / (total / 1e9)


def connect(address: tuple[str, int]) -> socket.socket:
    sock = socket.create_connection(address)
    sock.setblocking(False)
    return sock


def openssl_gb_per_s(cipher: str) -> float:
    """Return what one core encrypts in records of 16 KiB."""
    command = ["openssl", "speed", "-evp", cipher, "-bytes", "16384", "-seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"([\d.]+)k\s*$", done.stdout)
    assert found, done.stdout
    return float(found.group(1)) * 1000 / 1e9


def best(rounds: list[Figures]) -> Figures:
    """Return the best of each figure: what else runs on the machine only makes them worse."""
    rates, sent, received = zip(*rounds, strict=True)
    return max(rates), min(sent), min(received)


def main() -> None:
    total = int(float(sys.argv[1] if len(sys.argv) > 1 else 2) * 1e9)
    with tempfile.TemporaryDirectory() as directory:
        certs = Certificates(Path(directory))
        client = TlsChannels(certs.node("decode"), deployment="demo")
        server = TlsChannels(certs.node("prefill"), deployment="demo")
        plain = best([measure(PlainChannels(), PlainChannels(), total) for _ in range(ROUNDS)])
        tls = best([measure(client, server, total) for _ in range(ROUNDS)])
    ciphers = {name: openssl_gb_per_s(name) for name in ("aes-128-gcm", "aes-256-gcm")}
    print("lane   GB/s   CPU s/GB sending  receiving   GB/s per core sending  receiving")
    for name, (rate, sent_s, received_s) in (("plain", plain), ("tls", tls)):
        print(
            f"{name:6} {rate:5.2f} {sent_s:13.3f} {received_s:15.3f}"
            f" {1 / sent_s:17.2f} {1 / received_s:15.2f}"
        )
    for name, rate in ciphers.items():
        print(f"openssl speed {name}: {rate:.2f} GB/s per core, {1 / rate:.3f} CPU s/GB")
    cipher_s = 1 / ciphers["aes-256-gcm"]
    more = [tls[i] - plain[i] for i in (1, 2)]
    print(
        f"TLS adds {more[0]:.3f} and {more[1]:.3f} CPU s/GB, of which the cipher is {cipher_s:.3f}"
    )


if __name__ == "__main__":
    main()
