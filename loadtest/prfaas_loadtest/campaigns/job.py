"""What the processes that send a campaign's load are told: all of it, as one JSON document."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from prfaas.errors import ConfigError, StateError
from prfaas_loadtest.campaigns.asking import Api
from prfaas_loadtest.campaigns.campaign import InputForm
from prfaas_loadtest.workloads.prompts import IdPrompts
from prfaas_loadtest.workloads.schedule import Request
from prfaas_loadtest.workloads.text_prompts import TextPrompts, load_text_prompts


@dataclass(frozen=True, slots=True)
class Job:
    """How to send; a secret is in none of it: `api_key_env` names the variable that holds the key,
    `api_key_file` the file. `certificate` is the file of the only one that the target may show;
    empty: one that this machine trusts.

    `timeout_s` is in real seconds, `dilation` how many seconds one of them takes. `tokenizer` is a
    model's directory, or empty with token ids.
    """

    url: str
    api: Api
    model: str
    input: InputForm
    tokenizer: str
    first_id: int
    last_id: int
    timeout_s: float
    max_in_flight: int
    api_key_env: str
    dilation: float
    salt: int
    api_key_file: str = ""
    certificate: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "Job":
        """Return the job of a document."""
        return cls(**{**row, "api": Api(row["api"]), "input": InputForm(row["input"])})

    def prompts(self) -> "IdPrompts | TextPrompts":
        """Return what makes the prompts; reads the tokenizer.

        Raises:
            ConfigError: there is none, or it makes no such texts.
        """
        if self.input is InputForm.IDS:
            return IdPrompts(self.first_id, self.last_id + 1, self.salt)
        return load_text_prompts(Path(self.tokenizer), chat=self.api is Api.CHAT, salt=self.salt)


def write_job(job: Job, file: Path) -> None:
    """Write the job's file."""
    file.write_text(json.dumps(job.to_json(), indent=1) + "\n")


def read_job(job_file: Path, schedule_file: Path) -> tuple[Job, list[Request]]:
    """Read a job and its schedule.

    Raises:
        StateError: they are not there, or damaged.
    """
    try:
        job = Job.from_json(json.loads(job_file.read_text()))
        with schedule_file.open("rb") as lines:
            return job, [Request.from_json(orjson.loads(line)) for line in lines]
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise StateError(f"{job_file.parent}: no run of a campaign: {error}") from None


def divided(requests: Sequence[Request], workers: int) -> list[list[Request]]:
    """Divide requests among workers in turn; those of one conversation stay together."""
    roots: dict[int, int] = {}
    shares: list[list[Request]] = [[] for _ in range(workers)]
    turn = 0
    for request in requests:
        if request.follows < 0:
            roots[request.index] = turn % workers
            turn += 1
    ordered = sorted(requests, key=lambda request: len(request.chain))
    for request in ordered:
        if request.follows >= 0:
            roots[request.index] = roots.get(request.follows, 0)
    for request in requests:
        shares[roots[request.index]].append(request)
    return shares
