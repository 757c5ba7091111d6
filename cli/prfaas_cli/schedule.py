"""`prfaasctl schedule`: the plan that is in force, what it was, and another one by hand."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from prfaas.errors import ConfigError
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

app = typer.Typer(
    help="The plan in force: threshold and roles, by whom and why; change or pin it.",
    no_args_is_help=True,
)

WhyOption = Annotated[str, typer.Option(help="Why, for those who read the versions.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")]


@app.command("show")
def show(
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Show the plan, who leads, what is seen and what the scheduler proposes."""
    document = _ask(state_dir, name, "plan")
    _output(document, lambda: _shown(document), as_json=as_json)


@app.command("versions")
def versions(
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Show the plan's versions, the newest first."""
    document = _ask(state_dir, name, "plan/versions")
    _output(document, lambda: _version_lines(document["versions"]), as_json=as_json)


@app.command("apply")
def apply(
    threshold: Annotated[
        int | None, typer.Option(min=0, max=1 << 30, help="Offload above so many tokens.")
    ] = None,
    roles: Annotated[
        list[str] | None,
        typer.Option(help="Prefill and decode nodes of a region, as in b=3/5.", metavar="R=P/D"),
    ] = None,
    pin: Annotated[
        bool, typer.Option("--pin", help="And let the scheduler change nothing.")
    ] = False,
    why: WhyOption = "",
    dry_run: DryRunOption = False,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Make another version of the plan; what is not said stays as it is."""
    body: dict[str, Any] = {"why": why, "dry_run": dry_run}
    if threshold is not None:
        body["threshold_tokens"] = threshold
    if roles:
        body["roles"] = dict(map(_parse_roles, roles))
    if pin:
        body["pinned"] = True
    if len(body) == 2:
        raise ConfigError("nothing to apply: give --threshold, --roles or --pin")
    _put(body, state_dir, name, as_json=as_json)


@app.command("pin")
def pin(
    why: WhyOption = "",
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Keep the plan as it is: the scheduler proposes, and changes nothing."""
    _put({"pinned": True, "why": why}, state_dir, name, as_json=as_json)


@app.command("unpin")
def unpin(
    why: WhyOption = "",
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Let the scheduler change the plan again."""
    _put({"pinned": False, "why": why}, state_dir, name, as_json=as_json)


def _parse_roles(text: str) -> tuple[str, dict[str, int]]:
    region, _, counts = text.partition("=")
    prefill, _, decode = counts.partition("/")
    try:
        return region, {"n_p": int(prefill), "n_d": int(decode)}
    except ValueError:
        raise ConfigError(
            f"--roles {text!r}: expected REGION=PREFILL/DECODE, as in b=3/5"
        ) from None


def _ask(
    state_dir: Any, name: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    from prfaas_cli.observation import Observed

    return Observed.of(Place.of(state_dir, name)).ask_admin(path, body)


def _put(body: dict[str, Any], state_dir: Any, name: str, *, as_json: bool) -> None:
    document = _ask(state_dir, name, "plan", body)
    _output(document, lambda: _put_lines(document), as_json=as_json)


def _output(document: dict[str, Any], lines: Any, *, as_json: bool) -> None:
    from prfaas_cli.output import Output

    Output(as_json=as_json).result(document, lines)


def _put_lines(document: dict[str, Any]) -> Iterator[str]:
    if not document["changes"]:
        yield "nothing changes but the version"
    for key, (before, after) in document["changes"].items():
        yield f"{key}: {_value(before)} -> {_value(after)}"
    would = "would be" if document["dry_run"] else "is"
    yield f"this {would} version {document['plan']['version']}"


def _shown(document: dict[str, Any]) -> Iterator[str]:
    plan = document["plan"]
    if plan is None:
        yield f"no plan yet; the threshold is {document['threshold_tokens']} tokens"
    else:
        pinned = ", pinned" if plan["pinned"] else ""
        yield f"plan:       version {plan['version']}{pinned}, by {plan['by']}: {plan['why']}"
        yield f"threshold:  {document['threshold_tokens']} tokens"
        yield f"roles:      {_value(plan['roles'])}"
    yield f"leader:     {document['leader'] or 'none'}"
    demand = document["demand"]
    if demand:
        yield (
            f"demand:     {demand['rate_per_s']:g} requests/s of {demand['mean_uncached_tokens']:g}"
            f" uncached and {demand['output_tokens']:g} output tokens"
            f" ({demand['requests']} remembered)"
        )
    yield f"fullest:    {document['bottleneck']}"
    for node, role in document["converting"].items():
        yield f"converting: {node} to {role}"
    if document["proposal"]:
        proposed = document["proposal"]
        yield (
            f"proposed:   threshold {proposed['threshold_tokens']}, roles"
            f" {_value(proposed['roles'])}: {proposed['why']}"
        )
    if document["problem"]:
        yield f"scheduler:  {document['problem']}"


def _version_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    from datetime import datetime

    from prfaas_cli.output import table

    rows = [["VERSION", "AT", "THRESHOLD", "ROLES", "PINNED", "BY", "WHY"]]
    for plan in found:
        at = datetime.fromtimestamp(plan["at_s"]).isoformat(" ", "seconds")  # noqa: DTZ006 - local
        pinned = "yes" if plan["pinned"] else "no"
        threshold = str(plan["threshold_tokens"])
        roles = _value(plan["roles"])
        rows.append([str(plan["version"]), at, threshold, roles, pinned, plan["by"], plan["why"]])
    yield from table(rows) if found else ["no plan yet"]


def _value(value: Any) -> str:
    """Return a value of a plan for people; roles as they are given."""
    if isinstance(value, dict):
        return " ".join(f"{r}={c['n_p']}/{c['n_d']}" for r, c in value.items()) or "as they are"
    return "none" if value is None else str(value)
