"""What twins cost: CPU per request, and how many events one process makes a second.

    .venv/bin/python tests/bench/twin/cost.py --instances 100 --requests 200

Reports; gates nothing. Half of the instances prefill, half decode, in one process; requests come
from this one, all at once, each through a pair of its own in turn. The CPU is of the twins' process
alone, from /proc. `events` are tokens, chunks of caches sent, and layers computed.
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from pathlib import Path

import aiohttp
from twin_engines import running, start_twins, twin_config

from prfaas.records import Role
from prfaas.twin_section import TwinSection
from prfaas_cpu.models import default_models_dir

VOCABULARY = 500


async def ask(
    session: aiohttp.ClientSession, ports: tuple[int, int, int], room: int, body: bytes, path: str
) -> float:
    """Send both legs of a request, and return how long it took."""
    prefill, bootstrap, decode = ports
    began_s = time.monotonic()
    meeting = (
        f',"bootstrap_host":"127.0.0.1","bootstrap_port":{bootstrap},"bootstrap_room":{room}}}'
    )
    headers = {"content-type": "application/json"}

    async def leg(port: int, data: bytes) -> None:
        url = f"http://127.0.0.1:{port}{path}"
        async with session.post(url, data=data, headers=headers) as answer:
            await answer.read()
            assert answer.status == 200

    plain = body.replace(b'"stream": true', b'"stream": false')
    await asyncio.gather(
        leg(prefill, plain[:-1] + meeting.encode()), leg(decode, body[:-1] + meeting.encode())
    )
    return time.monotonic() - began_s


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run(options: argparse.Namespace, pairs: list[tuple[int, int, int]], pid: int) -> None:
    rng = random.Random(1)
    bodies = []
    for _ in range(options.requests):
        prompt = [rng.randrange(3, VOCABULARY) for _ in range(options.prompt)]
        bodies.append(
            json.dumps(
                {"prompt": prompt, "max_tokens": options.tokens, "stream": options.stream}
            ).encode()
        )
    timeout = aiohttp.ClientTimeout(total=3600)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        path = "/v1/completions"
        await asyncio.gather(
            *(ask(session, pair, 10**6 + i, bodies[0], path) for i, pair in enumerate(pairs))
        )
        before_s, began_s = cpu_s(pid), time.monotonic()
        times = await asyncio.gather(
            *(
                ask(session, pairs[i % len(pairs)], i + 1, body, path)
                for i, body in enumerate(bodies)
            )
        )
        took_s, used_s = time.monotonic() - began_s, cpu_s(pid) - before_s
    tokens = options.requests * options.tokens
    print(
        f"{options.requests} requests of {options.prompt} + {options.tokens} tokens: {took_s:.1f} s"
    )
    print(f"CPU of the twins: {used_s:.2f} s, {used_s / options.requests * 1e3:.1f} ms a request")
    print(f"{tokens / took_s:.0f} tokens/s, {used_s / tokens * 1e6:.0f} us of CPU a token")
    print(f"mean latency {sum(times) / len(times):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--prompt", type=int, default=27_000)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--scale", type=float, default=1000.0)
    parser.add_argument("--dilation", type=float, default=0.1)
    parser.add_argument("--stream", action="store_true")
    options = parser.parse_args()
    twin = TwinSection(scale=options.scale, dilation=options.dilation)
    with tempfile.TemporaryDirectory() as folder:
        configs = [
            twin_config(
                f"{role}-{number}",
                role,
                model=default_models_dir() / "qwen3-tiny",
                state_dir=Path(folder),
                twin=twin,
            )
            for number in range(options.instances // 2)
            for role in (Role.PREFILL, Role.DECODE)
        ]
        began_s = time.monotonic()
        process = start_twins(*configs)
        with running(process):
            pid = process.process.pid
            print(f"{len(configs)} twins up in {time.monotonic() - began_s:.1f} s")
            pairs = [
                (p.node.port, p.engine.bootstrap_port, d.node.port)  # type: ignore[union-attr]
                for p, d in zip(configs[::2], configs[1::2], strict=True)
            ]
            before_s = cpu_s(pid)
            time.sleep(3)
            print(f"idle: {(cpu_s(pid) - before_s) / 3 * 100:.1f} % of a core")
            asyncio.run(run(options, pairs, pid))
            status = Path(f"/proc/{pid}/status").read_text()
            lines = [line for line in status.splitlines() if line.startswith(("VmRSS", "Threads"))]
            print(", ".join(" ".join(line.split()) for line in lines))


if __name__ == "__main__":
    main()
