"""`prfaasctl top`: what the gateway's page shows, live in a terminal."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prfaas.errors import StateError
from prfaas_cli.place import DEFAULT_NAME, DEFAULT_STATE_DIR, NameOption, Place, StateDirOption

if TYPE_CHECKING:
    from prfaas_cli.output import Output

_ASKED = "overview?since=1e12&decisions="  # of the history nothing
_MAX_DECISIONS = 100

Look = Callable[[], dict[str, Any]]


def top(
    interval: Annotated[
        float, typer.Option(min=0.2, max=60, help="Seconds from one look to the next.")
    ] = 2.0,
    decisions: Annotated[
        int, typer.Option(min=0, max=_MAX_DECISIONS, help="Show so many decisions.")
    ] = 10,
    once: Annotated[bool, typer.Option("--once", help="Look once and leave.")] = False,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document a line, one for each look.")
    ] = False,
) -> None:
    """Watch the gateway: regions, links, threshold, queues, decisions. Ctrl-C leaves."""
    from prfaas_cli.observation import Observed
    from prfaas_cli.output import Output

    observed, output = Observed.of(Place.of(state_dir, name)), Output(as_json=as_json)

    def look() -> dict[str, Any]:
        return observed.ask_admin(f"{_ASKED}{decisions}")

    view = look()
    if once:
        _show(view, output)
    elif sys.stdout.isatty() and not as_json:
        _watch_screen(view, look, interval)
    else:
        _watch_lines(view, look, interval, output)


def _show(view: dict[str, Any], output: "Output") -> None:
    from prfaas_cli.top_lines import lines

    output.result(view, lambda: lines(view))


def _watch_lines(view: dict[str, Any], look: Look, interval: float, output: "Output") -> None:
    """Write one look after the other, for files and pipes, until interrupted."""
    try:
        while True:
            _show(view, output)
            while not (found := _next_look(look, interval, output.note)):
                pass
            view = found
    except KeyboardInterrupt:
        return


def _next_look(look: Look, interval: float, tell: Callable[[str], None]) -> dict[str, Any] | None:
    """Wait, then look; None where nobody answers, which is told."""
    time.sleep(interval)
    try:
        return look()
    except StateError as error:
        tell(str(error))
        return None


def _watch_screen(view: dict[str, Any], look: Look, interval: float) -> None:
    """Draw on the terminal until interrupted; what was there before comes back."""
    problem = ""

    def tell(text: str) -> None:
        nonlocal problem
        problem = text

    with _other_screen():
        try:
            while True:
                _draw(view, problem)
                problem = ""
                view = _next_look(look, interval, tell) or view
        except KeyboardInterrupt:
            return


@contextmanager
def _other_screen() -> Iterator[None]:
    """Use the terminal's other screen, without a cursor."""
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


def _draw(view: dict[str, Any], problem: str) -> None:
    from prfaas_cli.top_lines import lines

    size = shutil.get_terminal_size()
    shown = [line[: size.columns] for line in lines(view, problem)][: max(size.lines - 1, 1)]
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
    sys.stdout.flush()
