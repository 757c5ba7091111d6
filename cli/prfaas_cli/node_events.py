"""`prfaasctl node events`: what a node's prefix cache holds, and its changes as they happen."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prfaas.cache_events import encode_batch
from prfaas.errors import PrfaasError, StateError
from prfaas_transport.event_socket import EventReader

#: A publisher that says nothing for so long has said all there is.
_QUIET_S = 0.5


def held(path: Path) -> dict[str, Any]:
    """Return what the cache of the engine behind an event socket holds now.

    Raises:
        StateError: nobody publishes there.
    """
    reader = _connect(path)
    try:
        for _ in reader.catch_up(quiet_s=_QUIET_S):
            pass
    except (OSError, PrfaasError) as error:
        raise StateError(f"{path}: {error}") from None
    finally:
        reader.close()
    shape = reader.mirror.shape
    return {
        "seq": reader.seq,
        "blocks": reader.mirror.num_blocks,
        "states": reader.mirror.num_states,
        "block_tokens": shape.block_tokens,
        "stateful": shape.stateful,
        "window_tokens": shape.window_tokens,
    }


def follow(path: Path, *, seconds: float, write: Callable[[str], object] | None = None) -> None:
    """Write batches as lines of JSON for some seconds, the snapshot first.

    Raises:
        StateError: nobody publishes there, or it ended.
    """
    write = write or sys.stdout.write
    reader = _connect(path)
    deadline_s = time.monotonic() + seconds
    try:
        while (left_s := deadline_s - time.monotonic()) > 0:
            for batch in reader.catch_up(quiet_s=min(left_s, _QUIET_S)):
                write(encode_batch(batch).decode())
    except (OSError, PrfaasError) as error:
        raise StateError(f"{path}: {error}") from None
    finally:
        reader.close()


def _connect(path: Path) -> EventReader:
    reader = EventReader(path)
    try:
        reader.connect()
    except (FileNotFoundError, ConnectionRefusedError):
        raise StateError(
            f"nobody publishes cache events on {path}: is engine.cache_events on (deploy"
            " --cache-events), and did the engine serve a request?"
        ) from None
    except (OSError, PrfaasError) as error:
        raise StateError(f"{path}: {error}") from None
    return reader
