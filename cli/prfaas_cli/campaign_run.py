"""One run of a campaign: prepare, send, sum up, show."""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from prfaas.errors import ConfigError, PrfaasError, StateError
from prfaas.workload import Trace
from prfaas_cli.api_key import KEY_VARIABLE, check_key, given_file, read_key
from prfaas_cli.campaign_prediction import check_plan
from prfaas_cli.campaign_results import Results, read_results, write_results
from prfaas_cli.campaign_target import Facts, check_tokenizer, find_target
from prfaas_cli.output import Output
from prfaas_cli.place import Place
from prfaas_loadtest.campaigns import Campaign, Outcome, campaign_files, parse_campaign
from prfaas_loadtest.campaigns.job import Job
from prfaas_loadtest.campaigns.run import (
    INTERRUPTED,
    RunFolder,
    Spread,
    check_ports,
    run_load,
    worker_arguments,
)
from prfaas_loadtest.workloads import Schedule, make_schedule

_LARGEST_FILE = 1 << 20
_SALT_BITS = 48
_HIGHEST_RATE = 1e6
_FAILED = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks beside the file. `rate` brings the same requests at another mean
    rate, `requests` is another number of them."""

    file: Path
    out: Path | None = None
    rate: float | None = None
    requests: int | None = None
    spread: Spread = field(default_factory=Spread)


def read_campaign(file: Path) -> tuple[str, Campaign]:
    """Return a campaign's text and what it says, with the traces that it names beside it.

    Raises:
        ConfigError: naming the file and what is wrong.
    """
    from prfaas_cli.profile_files import read_bytes
    from prfaas_cli.trace_file import read_trace

    try:
        text = read_bytes(file, most_bytes=_LARGEST_FILE).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8 text") from None
    traces: dict[str, Trace] = {}
    for named in campaign_files(text, source=str(file)):
        traces[named] = read_trace(file.parent / named)
    return text, parse_campaign(text, source=str(file), traces=traces)


def run_campaign(asked: Asked, place: Place, output: Output) -> int:
    """Run a campaign, and give its results; return the exit status.

    Raises:
        PrfaasError: it could not be run, or nothing was measured.
    """
    text, campaign = read_campaign(asked.file)
    if asked.requests is not None:
        campaign = replace(campaign, requests=asked.requests)
    facts, meter = find_target(campaign, place)
    check_plan(campaign, facts, beside=asked.file.parent)
    schedule = _schedule(campaign, asked.rate)
    check_ports(asked.spread)
    folder = RunFolder(asked.out or _new_folder(campaign.name))
    folder.prepare(text, _job(campaign, facts, beside=asked.file.parent), schedule)
    write_results(folder.facts, facts.to_json() | {"requests": campaign.requests})
    for line in _head(campaign, facts, schedule, folder):
        output.note(line)

    def tick() -> None:
        if meter is not None:
            meter.write(folder.link)

    began_s = time.time()
    status = run_load(folder, asked.spread, tick)
    tick()
    write_results(folder.facts, facts.to_json() | {"began_at_s": began_s})
    return _give(folder, asked, output, status)


def _give(folder: RunFolder, asked: Asked, output: Output, status: int) -> int:
    from prfaas_cli.campaign_lines import lines_of
    from prfaas_cli.campaign_report import page

    if status == INTERRUPTED and not (folder.samples.exists() and folder.samples.stat().st_size):
        raise KeyboardInterrupt  # before anything was due: there are no results to give
    results = _results(folder, asked.file.parent, output)
    document = results.document()
    write_results(folder.summary, document)
    folder.report.write_text(page(results))
    interrupted = status == INTERRUPTED
    extra = {"folder": str(folder.path), "report": str(folder.report), "interrupted": interrupted}
    output.result(document | extra, lambda: _lines(folder, lines_of(results)))
    if interrupted:
        output.note("interrupted; what was measured until then is kept")
    elif not any(sample.outcome is Outcome.ANSWERED for sample in results.samples):
        output.note("no request was answered")
        return _FAILED
    return status


def _results(folder: RunFolder, beside: Path, output: Output) -> Results:
    """Read the run; a prediction that cannot be made loses no measurement."""
    try:
        return read_results(folder, beside=beside)
    except PrfaasError as error:
        results = read_results(folder, beside=beside, predicted=False)
        output.note(f"no prediction: {error}")
        return results


def _lines(folder: RunFolder, lines: Iterator[str]) -> Iterator[str]:
    yield from lines
    yield f"samples: {folder.samples}"
    yield f"report:  {folder.report}"


def _schedule(campaign: Campaign, rate: float | None) -> Schedule:
    if rate is not None and not rate <= _HIGHEST_RATE:
        raise ConfigError(f"--rate {rate:g}: allowed: at most {_HIGHEST_RATE:g} per second")
    schedule = make_schedule(campaign.workloads, requests=campaign.requests, seed=campaign.seed)
    if rate is None:
        return schedule
    usual = sum(workload.rate_per_s for workload in campaign.workloads)
    return schedule.faster(rate / usual)


def _job(campaign: Campaign, facts: Facts, *, beside: Path) -> Job:
    target = campaign.target
    api_key_env, api_key_file = _key_of(campaign, beside)
    salt = campaign.prompt_salt
    return Job(
        url=facts.url,
        api=target.api,
        model=target.model,
        input=target.input,
        tokenizer=check_tokenizer(campaign),
        first_id=target.first_id,
        last_id=target.last_id,
        timeout_s=target.timeout_s,
        max_in_flight=target.max_in_flight,
        api_key_env=api_key_env,
        api_key_file=api_key_file,
        certificate=facts.certificate,
        dilation=facts.dilation,
        salt=secrets.randbits(_SALT_BITS) if salt is None else salt,
    )


def _key_of(campaign: Campaign, beside: Path) -> tuple[str, str]:
    """Return the variable or the file that holds the key: the campaign's, or else, for a deployment
    of this machine, that of prfaasctl itself.

    Raises:
        ConfigError: there is no key in it.
    """
    target = campaign.target
    if target.api_key_env:
        if target.api_key_env not in os.environ:
            raise ConfigError(
                f"target.api_key_env = {target.api_key_env!r}: not in the environment"
            )
        return target.api_key_env, ""
    file = (beside / target.api_key_file).resolve() if target.api_key_file else None
    if file is None and not target.url:
        file = given_file()
        if file is None and os.environ.get(KEY_VARIABLE, "").strip():
            return KEY_VARIABLE, ""
    if file is None:
        return "", ""
    check_key(read_key(file, "target.api_key_file"), f"target.api_key_file {file}")
    return "", str(file)


def _head(campaign: Campaign, facts: Facts, schedule: Schedule, folder: RunFolder) -> Iterator[str]:
    wall_s = schedule.span_s * facts.dilation
    yield (
        f"campaign {campaign.name}: {len(schedule.requests)} requests to {facts.url},"
        f" {schedule.rate_per_s:.2f} per second, due within {schedule.span_s:.0f} s"
    )
    if facts.dilation != 1:
        yield f"a second takes {facts.dilation:g} s there: {wall_s:.0f} s until the last is due"
    yield f"results: {folder.path}"


def _new_folder(name: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
    return Path(f"campaign-{safe}-{stamp}")


def run_worker(master: str) -> None:
    """Run a worker of another machine's campaign until it is over.

    Raises:
        ConfigError: the address is none.
        StateError: the worker failed.
    """
    host, separator, port = master.rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65535:
        raise ConfigError(f"--master {master}: allowed: HOST:PORT")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)  # the worker must not outlive us
    try:
        status = subprocess.run(worker_arguments(host, int(port)), check=False).returncode
    except OSError as error:
        raise StateError(f"worker: {error}") from None
    if status:
        raise PrfaasError(f"the worker ended with status {status}; see the lines above")
