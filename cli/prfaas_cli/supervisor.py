"""The daemon that `deploy` leaves running: `python -m prfaas_cli.supervisor --state DIR`.

SIGTERM ends it together with all that it runs. After a SIGKILL the processes run on, and the next
supervisor adopts them.
"""

import argparse
import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prfaas.errors import PrfaasError, StateError
from prfaas_cli.place import MARKER, Place
from prfaas_cli.process_plan import ProcessSpec
from prfaas_cli.supervision import Supervisor


def main(argv: Sequence[str] | None = None) -> int:
    """Supervise the deployment in a directory; return the exit status."""
    parser = argparse.ArgumentParser(prog="prfaas_cli.supervisor", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the deployment's directory")
    directory = parser.parse_args(argv).state.resolve()
    place = Place(directory.parent, directory.name)
    os.environ[MARKER] = str(place.directory)
    try:
        with _only_one(place):
            asyncio.run(_supervise(place))
    except PrfaasError as error:
        sys.stderr.write(f"supervisor: {error}\n")
        return error.exit_code
    return 0


async def _supervise(place: Place) -> None:
    specs = [ProcessSpec.from_json(raw) for raw in place.require_deployment()["processes"]]
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await Supervisor(place, specs).run(stop)


@contextmanager
def _only_one(place: Place) -> Iterator[None]:
    path = place.directory / "supervisor.lock"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(descriptor, place)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, place: Place) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateError(f"another supervisor runs in {place.directory}") from None


if __name__ == "__main__":
    sys.exit(main())
