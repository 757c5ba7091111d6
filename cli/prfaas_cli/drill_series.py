"""One drill after the other: those with equal sites share one deployment."""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from prfaas.errors import ConfigError, PrfaasError, StateError
from prfaas_cli.drill_deploy import existing_site, made_site
from prfaas_cli.drill_lines import track_record
from prfaas_cli.drill_site import DeploymentSite
from prfaas_cli.output import Output
from prfaas_loadtest.drills import Drill, Run, SiteSpec, make_plan, run_drill
from prfaas_loadtest.drills.history import to_lines
from prfaas_loadtest.drills.report import page
from prfaas_loadtest.drills.uninterrupted import uninterrupted


@dataclass(frozen=True, slots=True)
class Asked:
    """What `drill run` was asked for."""

    drills: Sequence[Drill]
    seed: int | None
    seconds: float
    report: Path | None
    history: Path | None
    name: str | None
    state_dir: Path | None


@dataclass(frozen=True, slots=True)
class Result:
    """One drill's run, or why there is none."""

    drill: Drill
    seed: int
    run: Run | None
    took_s: float
    error: str = ""
    exit_code: int = 0


def run_series(asked: Asked, output: Output) -> list[Result]:
    """Run all drills, then again with new seeds while there is time; return how each went.

    Raises:
        PrfaasError: a report cannot be written, or something cannot be removed.
    """
    series = _Series(asked, output)
    _check_writable(asked)
    with _signals_interrupt(), ExitStack() as stack:
        if asked.name is not None:
            series.site = existing_site(asked.name, asked.state_dir)
        stack.callback(series.close)
        for drill, seed in series.turns():
            series.results.append(series.run(drill, seed))
    series.write_record()
    return series.results


def _check_writable(asked: Asked) -> None:
    """Find out before anything is deployed whether the files that are asked for can be written."""
    report, history = asked.report, asked.history
    if report is not None and len(asked.drills) > 1 and not report.is_dir() and report.suffix:
        raise ConfigError(f"--report {report}: allowed with several drills: a directory")
    if history is not None:
        _check_folder("--history", history, history.parent)
    if report is not None and len(asked.drills) == 1 and not report.is_dir():
        _check_folder("--report", report, report.parent)
    elif report is not None:
        try:
            report.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--report {report}: {error.strerror}") from None
        _check_folder("--report", report, report)


def _check_folder(option: str, path: Path, folder: Path) -> None:
    if path is not folder and path.is_dir():
        raise ConfigError(f"{option} {path}: is a directory; name a file")
    if not folder.is_dir():
        raise ConfigError(f"{option} {path}: allowed: a folder that exists, not {folder}")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{option} {path}: cannot be written")


class _Series:
    """Runs drills in turn. Owns the deployment that it made."""

    def __init__(self, asked: Asked, output: Output) -> None:
        self._asked = asked
        self._output = output
        self._made: ExitStack | None = None
        self._spec: SiteSpec | None = None
        self.site: DeploymentSite | None = None
        self.results: list[Result] = []

    def turns(self) -> Iterator[tuple[Drill, int]]:
        """Yield what to run; drills of one kind of site follow each other."""
        drills = sorted(self._asked.drills, key=lambda drill: repr(drill.site))
        ends_s = time.monotonic() + self._asked.seconds
        for lap in itertools.count():
            for drill in drills:
                if lap and time.monotonic() >= ends_s:
                    return
                seed = drill.seed if self._asked.seed is None else self._asked.seed
                yield drill, seed + lap
            if time.monotonic() >= ends_s:
                return

    def run(self, drill: Drill, seed: int) -> Result:
        """Run one drill on its site."""
        began_s = time.monotonic()
        self._output.note(f"drill {drill.name}, seed {seed}: {drill.about}")
        try:
            site = self._site_for(drill.site)
            plan = make_plan(drill, seed=seed, targets=site.processes)
            run = asyncio.run(run_drill(plan, site, say=self._output.note))
        except PrfaasError as error:
            # What a broken drill leaves is no site for the next one.
            self._output.note(f"drill {drill.name}: {error}")
            self.close()
            took_s = time.monotonic() - began_s
            return Result(drill, seed, None, took_s, str(error), error.exit_code)
        self._write(drill, run)
        if not run.passed:
            self.close()
        return Result(drill, seed, run, round(time.monotonic() - began_s, 2))

    def close(self) -> None:
        """Remove the deployment that was made here, and nothing else."""
        made, self._made, self._spec = self._made, None, None
        if made is not None:
            self.site = None
            with uninterrupted():
                made.close()

    def _site_for(self, spec: SiteSpec) -> DeploymentSite:
        if self._asked.name is not None:
            assert self.site is not None
            return self.site
        if self.site is None or self._spec != spec:
            self.close()
            made = ExitStack()
            self._made, self._spec = made, spec
            self.site = made.enter_context(made_site(spec, self._output))
        return self.site

    def _write(self, drill: Drill, run: Run) -> None:
        try:
            if self._asked.report is not None:
                path = self._report_path(self._asked.report, drill)
                path.write_text(page(run))
                self._output.note(f"report: {path}")
            if self._asked.history is not None:
                with self._asked.history.open("a") as file:
                    file.writelines(to_lines(run.records))
        except OSError as error:
            raise StateError(f"cannot write {error.filename}: {error.strerror}") from None

    def write_record(self) -> None:
        """Write the table of all runs beside their reports."""
        report = self._asked.report
        if report is not None and report.is_dir():
            path = report / "track-record.md"
            path.write_text(track_record(self.results))
            self._output.note(f"all runs: {path}")

    def _report_path(self, asked: Path, drill: Drill) -> Path:
        if len(self._asked.drills) == 1 and not asked.is_dir():
            return asked
        return asked / f"{drill.name}.html"


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a terminal that closes, end the command as Ctrl-C does: everything
    is mended and removed first. What `nohup` has ignored stays ignored."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM, signal.SIGHUP]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, terminate) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
