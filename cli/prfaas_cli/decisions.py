"""`prfaasctl decisions`: where the last requests went, and why."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from prfaas.errors import ConfigError
from prfaas.reasons import Reason
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

if TYPE_CHECKING:
    from prfaas_cli.observation import Observed


def decisions(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show so many.")] = 20,
    reason: Annotated[
        str, typer.Option(help="Only those with this reason, such as link_congested.")
    ] = "",
    request_id: Annotated[str, typer.Option(help="Only those of one request.")] = "",
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Show the gateway's last routing decisions, the newest first."""
    from prfaas_cli.observation import Observed
    from prfaas_cli.output import Output

    if reason and reason not in list(Reason):
        raise ConfigError(f"--reason {reason}: allowed: {', '.join(Reason)}")
    asked = urlencode({"limit": limit, "reason": reason, "request_id": request_id})
    document = recent(Observed.of(Place.of(state_dir, name)), asked)
    Output(as_json=as_json).result(document, lambda: _lines(document["decisions"]))


def recent(observed: "Observed", asked: str) -> dict[str, Any]:
    """Return what the gateway says of its decisions."""
    return observed.ask_admin(f"decisions?{asked}")


def _lines(found: list[dict[str, Any]]) -> Iterator[str]:
    from prfaas_cli.output import table

    if not found:
        yield "no decision yet"
        return
    rows = [
        ["TIME", "REQUEST", "ROUTE", "REASON", "TOKENS", "CACHED", "LIMIT", "PREFILL", "DECODE"]
    ]
    yield from table(rows + [_row(noted) for noted in found])


def _row(noted: dict[str, Any]) -> list[str]:
    from datetime import datetime

    at = datetime.fromtimestamp(noted["at_s"]).strftime("%H:%M:%S.%f")[:-3]  # noqa: DTZ006 - local
    attempt = f" #{noted['attempt']}" if noted["attempt"] > 1 else ""
    return [
        at,
        noted["request_id"][:12] + attempt,
        noted["route"],
        noted["reason"],
        str(noted["prompt_tokens"]),
        str(noted["prefix_tokens"]),
        str(noted["threshold_tokens"]),
        noted["prefill"] or "-",
        noted["decode"] or "-",
    ]
