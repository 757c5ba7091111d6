"""A skip or an expected failure that nobody listed fails the session: it would hide a lost test."""

import os
import signal
import sys

import pytest
from hypothesis import settings

# The same examples in every run, and none fails for being slow on a busy machine. Others are tried
# with `--hypothesis-profile explore`.
settings.register_profile("repeat", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeat")

# A shell's job in the background ignores Ctrl-C, one under nohup a terminal that closes; and so
# would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

#: Reasons a test may be skipped for, and when; nothing else is tolerated.
TOLERATED_REASONS = {"needs root": os.geteuid() != 0}

_unexpected: list[str] = []
_exit_status = [0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root") is not None:
            item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _judge(report.nodeid, report.longrepr)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped or hasattr(report, "wasxfail"):
        _judge(report.nodeid, getattr(report, "wasxfail", None) or report.longrepr)


def _judge(node_id: str, reason: object) -> None:
    text = str(reason[2] if isinstance(reason, tuple) else reason)
    if not TOLERATED_REASONS.get(text.removeprefix("Skipped: "), False):
        _unexpected.append(f"{node_id}: {text}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _unexpected and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    _exit_status[0] = int(session.exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave without the interpreter's own teardown once everything is said.

    torch and grpc in one process crash there, now and then, after the last test: the exit status
    would tell of that instead of the tests.
    """
    if not hasattr(config, "workerinput") and "torch" in sys.modules:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_status[0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unexpected:
        terminalreporter.section("unexpected skips", red=True)
        for line in _unexpected:
            terminalreporter.line(line)
