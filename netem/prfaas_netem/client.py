"""Ask a running link emulator, and change its link."""

import json
import socket
from pathlib import Path
from typing import Any, cast

from prfaas.errors import ConfigError, StateError
from prfaas_netem.control import MAX_LINE_BYTES, check_path
from prfaas_netem.link_spec import LinkSpec

_TIMEOUT_S = 5.0


def show(control: Path | str) -> dict[str, Any]:
    """Return what the emulator does and has done.

    `deployment`, `backend` (`kernel` or `nfqueue`), `mode` (`gso` or `packet`; `mixed` when the
    directions differ), `pid`, `uptime_s`, and `directions`, a list with for each way: `from`, `to`,
    `spec` (a LinkSpec in JSON form; its rate is configured, never a measurement), `mode`,
    `packets`, `bytes`, `drops` (packets by cause), `held_packets`, `netlink_errors`.

    Raises: StateError when no emulator answers.
    """
    return _ask(Path(control), {"op": "show"})


def set_link(
    control: Path | str, spec: LinkSpec, *, source: str | None = None, target: str | None = None
) -> dict[str, Any]:
    """Change the link while it runs, both ways or only from one region to the other.

    Returns what `show` returns, after the change.

    Raises: StateError when no emulator answers, ConfigError when it refuses the change.
    """
    request: dict[str, Any] = {"op": "set", "link": spec.to_json()}
    if source is not None:
        request["from"] = source
    if target is not None:
        request["to"] = target
    return _ask(Path(control), request)


def _ask(control: Path, request: dict[str, Any]) -> dict[str, Any]:
    check_path(control)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(control))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline(MAX_LINE_BYTES)
    except OSError as error:
        why = error.strerror or "no answer in time"
        raise StateError(f"no link emulator answers at {control}: {why}") from error
    if not line.endswith(b"\n"):
        raise StateError(f"the link emulator at {control} ended while it was asked")
    answer = cast(dict[str, Any], json.loads(line))
    if not answer.pop("ok"):
        raise ConfigError(str(answer["error"]))
    return answer
