"""A process that sends a campaign's load, on Locust:

    python -m prfaas_loadtest.campaigns.load local FOLDER [--web PORT]
    python -m prfaas_loadtest.campaigns.load master FOLDER --workers N --port PORT [--bind HOST]
    python -m prfaas_loadtest.campaigns.load worker --host HOST --port PORT

Locust gives the workers, the messages between them, the live statistics and the web page. Its users
wait for an answer before they ask again, which hides queueing; here one user in each worker sends
the worker's share of the schedule, each request when it is due (`Sender`).
"""

import signal  # isort: skip

if __name__ == "__main__":
    # Until there is something to keep, SIGINT ends the process without a word; `run` starts us with
    # it blocked, so that one that came before this line does so too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

import locust  # isort: skip  # first: it patches sockets for gevent

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gevent
import gevent.event
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import LocalRunner, MasterRunner
from locust.stats import stats_history

from prfaas.errors import PrfaasError
from prfaas_loadtest.campaigns.conductor import SampleBook, tell_progress
from prfaas_loadtest.campaigns.job import Job, divided, read_job
from prfaas_loadtest.campaigns.sample import Outcome, Sample
from prfaas_loadtest.campaigns.sender import Sender
from prfaas_loadtest.workloads.schedule import Request

_LEAD_S = 1.0
"""From when all workers know their shares until the campaign begins."""
_WORKERS_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_SHARE, _HELLO, _SAMPLE, _OVER, _STOP = (
    "prfaas_share", "prfaas_hello", "prfaas_sample", "prfaas_over", "prfaas_stop",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the roles; return the exit status."""
    options = _parser().parse_args(arguments)
    del sys.argv[1:]  # Locust's page would read them as options of its own
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        return _ROLES[options.role](options)
    except PrfaasError as error:
        sys.stderr.write(f"load: error: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="prfaas_loadtest.campaigns.load")
    parser.add_argument("role", choices=list(_ROLES))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--web", type=int, default=0, help="port of Locust's page; 0: none")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5557)
    return parser


def _user(run: Callable[[], None]) -> type[locust.User]:
    """Return the class of the one user of a worker."""

    class OpenLoop(locust.User):
        """Sends the worker's share."""

        @locust.task
        def campaign(self) -> None:
            run()
            raise StopUser

    return OpenLoop


def _fire(environment: Environment, job: Job, sample: Sample) -> None:
    """Give a sample to Locust's statistics, in real milliseconds."""
    failed = None if sample.outcome is Outcome.ANSWERED else RuntimeError(str(sample.outcome))
    scale = 1e3 / job.dilation
    name = sample.tenant + (f" {sample.route}" if sample.route else "")
    given: dict[str, Any] = {"name": name, "context": {}}
    fire: Callable[..., None] = environment.events.request.fire
    if sample.first_s >= 0:
        first_ms = (sample.first_s - sample.due_s) * scale
        told = {**given, "response_length": 0, "exception": None}
        fire(request_type="TTFT", response_time=first_ms, **told)
    whole_ms = max(0.0, sample.last_s - sample.due_s) * scale
    told = {**given, "response_length": sample.tokens, "exception": failed}
    fire(request_type="E2E", response_time=whole_ms, **told)


def _local(options: argparse.Namespace) -> int:
    """Send all from this process."""
    job, requests = read_job(options.folder / "job.json", options.folder / "schedule.jsonl")
    book = SampleBook(options.folder / "samples.jsonl", total=len(requests), dilation=job.dilation)
    over = gevent.event.Event()

    def take(sample: Sample) -> None:
        book.write(sample)
        _fire(environment, job, sample)

    sender = Sender(job, requests, take)
    begin_s = time.monotonic() + _LEAD_S

    def run() -> None:
        try:
            sender.run(begin_s)
        finally:
            over.set()

    environment = Environment(user_classes=[_user(run)], host=job.url)
    runner = environment.create_local_runner()
    return _lead(environment, runner, options, job, (book, begin_s, over), sender.stop, users=1)


def _master(options: argparse.Namespace) -> int:
    """Divide the schedule among the workers, and write what they tell."""
    job, requests = read_job(options.folder / "job.json", options.folder / "schedule.jsonl")
    book = SampleBook(options.folder / "samples.jsonl", total=len(requests), dilation=job.dilation)
    environment = Environment(user_classes=[_user(lambda: None)], host=job.url)
    runner = environment.create_master_runner(options.bind, options.port)
    hellos: list[str] = []
    overs: set[str] = set()
    over = gevent.event.Event()

    def hello(msg: Any, **_: Any) -> None:
        hellos.append(str(msg.node_id))

    def sample(msg: Any, **_: Any) -> None:
        book.write(Sample.from_json(msg.data))

    def ended(msg: Any, **_: Any) -> None:
        overs.add(str(msg.node_id))
        if len(overs) >= options.workers:
            over.set()

    runner.register_message(_HELLO, hello)
    runner.register_message(_SAMPLE, sample)
    runner.register_message(_OVER, ended)
    if not _wait(lambda: len(hellos) >= options.workers, _WORKERS_TIMEOUT_S):
        runner.quit()
        raise PrfaasError(
            f"{len(hellos)} of {options.workers} workers came within {_WORKERS_TIMEOUT_S:g} s;"
            f" start them with: prfaasctl campaign worker --master {options.bind}:{options.port}"
        )
    begin_at_s = time.time() + _LEAD_S
    for client, share in zip(hellos, divided(requests, options.workers), strict=False):
        told = {"job": job.to_json(), "requests": [row.to_json() for row in share]}
        runner.send_message(_SHARE, told | {"begin_at_s": begin_at_s}, client)

    def stop() -> None:
        runner.send_message(_STOP, {})

    begin_s = time.monotonic() + _LEAD_S
    gevent.spawn(_watch_workers, runner, over)
    led = (book, begin_s, over)
    return _lead(environment, runner, options, job, led, stop, users=options.workers)


def _worker(options: argparse.Namespace) -> int:
    """Send the share that the master gives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master says when it is over
    share: dict[str, Any] = {}
    senders: list[Sender] = []

    def run() -> None:
        job = Job.from_json(share["job"])
        requests = [Request.from_json(row) for row in share["requests"]]

        def take(sample: Sample) -> None:
            runner.send_message(_SAMPLE, sample.to_json())
            _fire(environment, job, sample)

        try:
            senders.append(Sender(job, requests, take))
            senders[-1].run(time.monotonic() + share["begin_at_s"] - time.time())
        finally:
            runner.send_message(_OVER, {})

    def stop(**_: Any) -> None:
        for sender in senders:
            sender.stop()

    environment = Environment(user_classes=[_user(run)])
    runner = environment.create_worker_runner(options.host, options.port)
    runner.register_message(_SHARE, lambda msg, **_: share.update(msg.data))
    runner.register_message(_STOP, stop)
    runner.send_message(_HELLO, {})
    runner.greenlet.join()
    return 0


def _watch_workers(runner: MasterRunner, over: gevent.event.Event) -> None:
    """End when no worker is left: their open requests are lost, and no one would say so."""
    while not over.is_set():
        gevent.sleep(1.0)
        if runner.worker_count <= 0:
            sys.stderr.write("load: error: all workers are gone\n")
            over.set()


def _lead(
    environment: Environment,
    runner: LocalRunner | MasterRunner,
    options: argparse.Namespace,
    job: Job,
    led: tuple[SampleBook, float, gevent.event.Event],
    stop: Callable[[], None],
    *,
    users: int,
) -> int:
    """Start the users, tell the progress, and end when it is over or a signal comes."""
    book, begin_s, over = led
    interrupted = gevent.event.Event()

    def interrupt() -> None:
        interrupted.set()
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, interrupt)
    web = environment.create_web_ui("127.0.0.1", options.web) if options.web else None
    history = gevent.spawn(stats_history, runner)
    teller = gevent.spawn(tell_progress, book, begin_s, job.dilation)
    runner.start(users, spawn_rate=users)
    while not over.wait(0.5):
        if interrupted.is_set():
            over.wait(_STOP_TIMEOUT_S)
            break
    teller.kill()
    history.kill()
    sys.stderr.write(book.line(max(0.0, (time.monotonic() - begin_s) / job.dilation)) + "\n")
    if web is not None:
        web.stop()  # type: ignore[no-untyped-call]
    runner.quit()
    book.close()
    return 130 if interrupted.is_set() else 0


def _wait(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        gevent.sleep(0.05)
    return condition()


_ROLES: dict[str, Callable[[argparse.Namespace], int]] = {
    "local": _local,
    "master": _master,
    "worker": _worker,
}
if __name__ == "__main__":
    sys.exit(main())
