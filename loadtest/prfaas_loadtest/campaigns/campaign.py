"""A campaign as its TOML file says it.

A campaign may name trace files. Whoever reads it asks `campaign_files` which, reads them and gives
what they hold to `parse_campaign`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from prfaas.errors import ConfigError
from prfaas.planning.case_table import Rule, Table
from prfaas.workload import Trace
from prfaas_loadtest.campaigns.asking import Api
from prfaas_loadtest.campaigns.summary import Slo
from prfaas_loadtest.workloads.schedule import MAX_REQUESTS
from prfaas_loadtest.workloads.workload import KEYS, Workload, parse_workload, trace_file

_TOP = (
    "name", "seed", "requests", "warmup_share", "dilation", "prompt_salt", "target", "slo", "plan",
    "workload",
)  # fmt: skip
_TARGET = (
    "url", "api", "model", "input", "tokenizer", "first_id", "last_id", "timeout_s",
    "max_in_flight", "api_key_env", "api_key_file",
)  # fmt: skip
_SLO = ("ttft_s", "tpot_s")
_PLAN = ("case", "policy", "threshold", "n_p", "n_d")
_POLICIES = ("prfaas", "threshold", "homogeneous", "naive")
_SHARE = Rule(lambda value: 0 <= value < 1, "a number from 0 to below 1")
_MAX_IN_FLIGHT = 100_000
_MAX_WORKLOADS = 1000


class InputForm(StrEnum):
    """In what form prompts are sent."""

    IDS = "ids"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked and how. An empty `url` is the deployment that the command names.

    `tokenizer` is a model's directory, or the name of a tiny model; only `text` needs it. Token ids
    are from `first_id` to `last_id`. `timeout_s` is in real seconds, from the time at which a
    request was due. The key is in the variable `api_key_env` or in the file `api_key_file`.
    """

    url: str = ""
    api: Api = Api.COMPLETIONS
    model: str = ""
    input: InputForm = InputForm.IDS
    tokenizer: str = ""
    first_id: int = 3
    last_id: int = 450
    timeout_s: float = 300.0
    max_in_flight: int = 1024
    api_key_env: str = ""
    api_key_file: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """The case and the policy whose prediction stands beside the measurement."""

    case: str
    policy: str = "threshold"
    threshold: int | None = None
    n_p: int | None = None
    n_d: int | None = None


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign. `dilation` is how many seconds a real one takes at the target (None: what the
    deployment says, or 1); `prompt_salt` fixes the tokens of prompts (None: others in each run)."""

    name: str
    seed: int
    requests: int
    warmup_share: float
    dilation: float | None
    prompt_salt: int | None
    target: Target
    slo: Slo
    plan: Planned | None
    workloads: tuple[Workload, ...]


def campaign_files(text: str, *, source: str) -> tuple[str, ...]:
    """Return the trace files that a campaign names, for its reader to read.

    Raises:
        ConfigError: the text is no campaign.
    """
    named = map(trace_file, _top(text, source).tables("workload", allowed=KEYS))
    return tuple(dict.fromkeys(file for file in named if file is not None))


def parse_campaign(text: str, *, source: str, traces: Mapping[str, Trace]) -> Campaign:
    """Read a campaign; `source` names it in errors, `traces` are those of `campaign_files`.

    Raises:
        ConfigError: one line, naming file, key, value and what is allowed.
    """
    top = _top(text, source)
    rows = top.tables("workload", allowed=KEYS)
    if not 1 <= len(rows) <= _MAX_WORKLOADS:
        top.refuse("workload", f"1 to {_MAX_WORKLOADS} tables, each headed [[workload]]")
    requests = top.whole("requests", least=1)
    if requests > MAX_REQUESTS:
        top.refuse("requests", f"1 to {MAX_REQUESTS}")
    return Campaign(
        name=top.text("name"),
        seed=top.whole("seed", least=0, default=1),
        requests=requests,
        warmup_share=top.number("warmup_share", _SHARE, 0.1),
        dilation=top.number_or_none("dilation"),
        prompt_salt=top.whole_or_none("prompt_salt", least=0),
        target=_target(top.table("target", allowed=_TARGET)),
        slo=_slo(top.table("slo", allowed=_SLO)),
        plan=_plan(top.table("plan", allowed=_PLAN)) if "plan" in top else None,
        workloads=tuple(
            parse_workload(row, traces[file] if (file := trace_file(row)) else None) for row in rows
        ),
    )


def _top(text: str, source: str) -> Table:
    try:
        raw: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    return Table(raw, source, "", allowed=_TOP)


def _target(rows: Table) -> Target:
    usual = Target()
    target = Target(
        url=rows.text("url") if "url" in rows else "",
        api=Api(_one_of(rows, "api", tuple(Api), usual.api)),
        model=rows.text("model") if "model" in rows else "",
        input=InputForm(_one_of(rows, "input", tuple(InputForm), usual.input)),
        tokenizer=rows.text("tokenizer") if "tokenizer" in rows else "",
        first_id=rows.whole("first_id", least=0, default=usual.first_id),
        last_id=rows.whole("last_id", least=1, default=usual.last_id),
        timeout_s=rows.number("timeout_s", default=usual.timeout_s),
        max_in_flight=rows.whole("max_in_flight", least=1, default=usual.max_in_flight),
        api_key_env=rows.text("api_key_env") if "api_key_env" in rows else "",
        api_key_file=rows.text("api_key_file") if "api_key_file" in rows else "",
    )
    if target.api_key_env and target.api_key_file:
        rows.refuse("api_key_file", "left out, where api_key_env names the key")
    if target.url and not _is_url(target.url):
        rows.refuse("url", "http:// or https:// with a host, perhaps a port, and nothing more")
    if target.max_in_flight > _MAX_IN_FLIGHT:
        rows.refuse("max_in_flight", f"1 to {_MAX_IN_FLIGHT}")
    if target.input is InputForm.IDS and target.api is Api.CHAT:
        rows.refuse("input", "text; a chat takes no token ids")
    if target.input is InputForm.TEXT and not target.tokenizer:
        rows.refuse("tokenizer", "with text: a model's directory, or a tiny model's name")
    if target.last_id <= target.first_id:
        rows.refuse("last_id", f"more than first_id, {target.first_id}")
    return target


def _one_of(rows: Table, key: str, allowed: tuple[str, ...], default: str) -> str:
    value = rows.text(key, default)
    if value not in allowed:
        rows.refuse(key, ", ".join(allowed))
    return value


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and not more


def _slo(rows: Table) -> Slo:
    return Slo(rows.number("ttft_s"), rows.number("tpot_s"))


def _plan(rows: Table) -> Planned:
    return Planned(
        case=rows.text("case"),
        policy=_one_of(rows, "policy", _POLICIES, "threshold"),
        threshold=rows.whole_or_none("threshold", least=0),
        n_p=rows.whole_or_none("n_p", least=0),
        n_d=rows.whole_or_none("n_d", least=1),
    )
