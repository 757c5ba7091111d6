"""Ask a node agent over its Unix socket."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from prfaas.errors import ConfigError, StateError


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("agent", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket file."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask_agent(
    socket_path: Path, path: str, body: dict[str, Any], *, timeout_s: float
) -> dict[str, Any]:
    """POST to an agent and return what it answers.

    Raises:
        ConfigError: the agent does not understand the request.
        StateError: it refuses, with its reason, or does not answer.
    """
    connection = _UnixConnection(socket_path, timeout_s)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        status, answer = response.status, json.loads(response.read())
    except (FileNotFoundError, ConnectionRefusedError):
        raise StateError(f"no node agent serves {socket_path}; is the node running?") from None
    except TimeoutError:
        raise StateError(f"the node agent at {socket_path} gave no answer in time") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise StateError(f"the node agent at {socket_path}: {error}") from None
    finally:
        connection.close()
    if status == 200 and isinstance(answer, dict):
        return answer
    reason = str(answer.get("error") if isinstance(answer, dict) else answer)
    raise ConfigError(reason) if status == 400 else StateError(reason)
