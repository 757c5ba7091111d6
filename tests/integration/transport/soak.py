"""A soak of the lanes: nodes in processes of their own, proxies that misbehave between them.

    python tests/integration/transport/soak.py SECONDS SEED [MODE ...]

MODE is plain, secret or mtls; all by default, one after another. What goes wrong and what rooms are
opened follows from the seed; when a thread comes to it does not, so a replay is a similar run.
"""

import itertools
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import soak_judge
from certificates import Certificates
from faulty_proxy import FaultyProxy
from soak_faults import Fault, digest, plan, stray_bytes
from soak_process import NodeProcess

MODES = ("plain", "secret", "mtls")
SENDERS = ("prefill-0", "prefill-1")
RECEIVERS = ("decode-0", "decode-1", "decode-2")
ROOM_TIMEOUT_S = 2.5
LONGEST_FREEZE_S = 1.0  # a frozen process keeps no deadline; well within the judge's slack
LIMITS = {
    "lanes": 3,
    "io_threads": 2,
    "room_timeout_s": ROOM_TIMEOUT_S,
    "liveness_s": 1.0,
    "connect_timeout_s": 1.0,
    "warm_bytes": 100_000,
}


@dataclass
class Result:
    """What happened in one soak; it is well if `problems` is empty."""

    digest: str = ""
    problems: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    passed_bytes: int = 0


class World:
    """All nodes and the proxies between them: one for each receiver and sender."""

    def __init__(self, mode: str, seed: int, folder: Path) -> None:
        self._seeds = itertools.count(seed * 1000)
        self._settings: dict[str, Any] = {"mode": mode, "limits": LIMITS}
        self._folder = folder
        self._files: dict[str, dict[str, str]] = {}
        if mode == "mtls":
            made = Certificates(folder / "certs")
            for name in SENDERS + RECEIVERS:
                files = made.node(name)
                parts = {"ca": files.ca, "cert": files.cert, "key": files.key}
                self._files[name] = {part: str(path) for part, path in parts.items()}
        self.lives: list[NodeProcess] = []
        self.nodes: dict[str, NodeProcess] = {}
        self.proxies: dict[tuple[str, str], FaultyProxy] = {}
        self._frozen: list[tuple[float, NodeProcess]] = []
        self._starting: list[NodeProcess] = []
        starting = {name: self._start(name) for name in SENDERS + RECEIVERS}
        for sender in SENDERS:
            address = tuple(starting[sender].answer()["address"])
            for receiver in RECEIVERS:
                self.proxies[receiver, sender] = FaultyProxy(address)  # type: ignore[arg-type]
        for receiver in RECEIVERS:
            starting[receiver].answer()
            self._aim(receiver)

    def _start(self, name: str) -> NodeProcess:
        role = "send" if name in SENDERS else "receive"
        settings = {**self._settings, "role": role, "seed": next(self._seeds)}
        node = NodeProcess(name, {**settings, "files": self._files.get(name)}, self._folder)
        self.lives.append(node)
        self.nodes[name] = node
        return node

    def _aim(self, receiver: str) -> None:
        found = [proxy.address for (name, _), proxy in self.proxies.items() if name == receiver]
        self.nodes[receiver].ask("targets", targets=found)
        self.nodes[receiver].answer()

    def do(self, fault: Fault) -> None:
        """Have one thing go wrong."""
        now = time.monotonic()
        self.thaw(now)
        self.admit(wait=False)
        proxy = list(self.proxies.values())[fault.pick % len(self.proxies)]
        ways = [proxy.up, proxy.down] if fault.way == "both" else [getattr(proxy, fault.way)]
        match fault.kind:
            case "reset":
                proxy.reset([fault.pick, fault.pick // 7])
            case "reset_all":
                proxy.reset(range(64))
            case "half_close":
                proxy.half_close(fault.pick // 7)
            case "stray":
                proxy.stray(stray_bytes(fault, proxy.first_bytes), fault.seconds)
            case "heal":
                for each in self.proxies.values():
                    each.heal()
            case "freeze":
                node = self._node(fault)
                node.signal(signal.SIGSTOP)
                self._frozen.append((now + min(fault.seconds, LONGEST_FREEZE_S), node))
            case "kill":
                self._restart(self._node(fault).name)
            case _:
                for way in ways:
                    _worsen(way, fault, now)

    def _node(self, fault: Fault) -> NodeProcess:
        names = SENDERS + RECEIVERS
        return self.nodes[names[fault.pick // 7 % len(names)]]

    def thaw(self, now: float) -> None:
        """Let frozen nodes go on when their time has come."""
        for until_s, node in list(self._frozen):
            if until_s <= now:
                node.signal(signal.SIGCONT)
                self._frozen.remove((until_s, node))

    def _restart(self, name: str) -> None:
        if self.nodes[name] in self._starting:
            return
        self.thaw(float("inf"))
        self.nodes[name].kill()
        self._starting.append(self._start(name))

    def admit(self, *, wait: bool) -> None:
        """Let restarted nodes take part, as soon as they are up."""
        for node in [node for node in self._starting if wait or node.has_answer()]:
            self._starting.remove(node)
            address = node.answer()["address"]
            if node.name in RECEIVERS:
                self._aim(node.name)
                continue
            for (_, sender), proxy in self.proxies.items():
                if sender == node.name:
                    proxy.target = tuple(address)

    def finish(self, result: Result) -> None:
        """Let all rooms end, look at what is left, and end the nodes."""
        self.thaw(float("inf"))
        self.admit(wait=True)
        for proxy in self.proxies.values():
            proxy.heal()
        receivers, senders = ([self.nodes[n] for n in names] for names in (RECEIVERS, SENDERS))
        for group in (receivers, senders):
            for node in group:
                node.ask("quiesce", within_s=ROOM_TIMEOUT_S + soak_judge.SLACK_S)
            for node in group:
                if not node.answer()["is_quiet"]:
                    result.problems.append(f"{node.life}: rooms did not end")
        for node in senders + receivers:
            node.ask("tables")
        for node in senders + receivers:
            result.problems += soak_judge.judge_tables(node.life, node.answer())
        for node in senders + receivers:
            node.ask("quit")
        for node in senders + receivers:
            node.answer()
            node.wait()

    def close(self) -> None:
        """End whatever is left."""
        for node in self.lives:
            if node.ended_s == float("inf"):
                node.kill()
        for proxy in self.proxies.values():
            proxy.close()


def _worsen(way: Any, fault: Fault, now: float) -> None:
    match fault.kind:
        case "stall":
            way.stalled_until_s = now + fault.seconds
        case "unread":
            way.unread_until_s = now + fault.seconds
        case "delay":
            way.delay_s = fault.seconds / 20
        case "pieces":
            way.piece_bytes = fault.size


def run(mode: str, seconds: float, seed: int, folder: Path) -> Result:
    """Soak for so long and judge; the nodes' logs stay in `folder`."""
    result = Result()
    done: list[Fault] = []
    world = World(mode, seed, folder)
    try:
        until_s = time.monotonic() + seconds
        for fault in plan(seed):
            if time.monotonic() + fault.wait_s >= until_s:
                break
            time.sleep(fault.wait_s)
            world.do(fault)
            done.append(fault)
        world.finish(result)
    finally:
        world.close()
    result.digest = digest(done)
    result.faults = Counter(fault.kind for fault in done)
    result.passed_bytes = sum(proxy.passed_bytes for proxy in world.proxies.values())
    result.problems += list(_judge(world, result))
    return result


def _judge(world: World, result: Result) -> Iterator[str]:
    logs = {node.life: soak_judge.lines_of(node.log) for node in world.lives}
    received: dict[int, set[str]] = defaultdict(set)
    for node in world.lives:
        for line in logs[node.life]:
            if line["event"] == "received":
                received[line["room"]].add(node.name)
    result.ends = soak_judge.reasons([line for lines in logs.values() for line in lines])
    killed = {node.name for node in world.lives if node.was_killed}
    for node in world.lives:
        lines = logs[node.life]
        errors = node.log.with_suffix(".err").read_text()
        if "Traceback" in errors or "internal error" in errors:
            yield f"{node.life}: wrote {errors[-2000:]}"
        yield from soak_judge.judge_node(node.life, lines, was_killed=node.was_killed)
        if node.name in RECEIVERS:
            yield from soak_judge.judge_receiver(node.life, lines, ROOM_TIMEOUT_S, node.ended_s)
        else:
            yield from soak_judge.judge_sender(node.life, lines, received, killed)


def main() -> int:
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    modes = sys.argv[3:] or MODES
    num_problems = 0
    for mode in modes:
        with tempfile.TemporaryDirectory() as folder:
            result = run(mode, seconds / len(modes), seed, Path(folder))
        print(f"{mode}: seed {seed}, faults {result.digest}: {dict(result.faults)}")
        print(f"  rooms ended: {dict(result.ends)}; {result.passed_bytes / 1e6:.0f} MB passed")
        for problem in result.problems:
            print(f"  WRONG: {problem}")
        num_problems += len(result.problems)
    return 1 if num_problems else 0


if __name__ == "__main__":
    sys.exit(main())
