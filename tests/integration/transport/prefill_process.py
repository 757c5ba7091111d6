"""A sender in a process of its own: prints its port, sends every room that is opened.

Usage: prefill_process.py PORT SEED [slow]. With `slow` it submits only the first half.
"""

import signal
import sys

import numpy as np
from transport_rig import RoomFailed, SendSide

from prfaas_transport import RoomOpened


def main() -> None:
    port, seed, slow = int(sys.argv[1]), int(sys.argv[2]), "slow" in sys.argv
    side = SendSide(port=port, seed=seed)

    def serve(event: object) -> None:
        if isinstance(event, RoomFailed):
            side.node.forget(event.room)
        if not isinstance(event, RoomOpened):
            return
        if slow:
            part = np.arange(event.grants["kv"] // 2)
            side.node.submit(event.room, group="kv", start=0, items=part)
        else:
            side.send(event.room, {name: np.arange(n) for name, n in event.grants.items()})

    side.events.__class__.__call__ = lambda _, event: serve(event)  # type: ignore[method-assign]
    print(side.node.address[1], flush=True)
    signal.pause()


main()
