"""A receiver in a process of its own: opens room 5 with all of `kv` and waits to be killed.

Usage: decode_process.py PORT, of a sender on the loopback address.
"""

import signal
import sys

import numpy as np
from transport_rig import ReceiveSide


def main() -> None:
    side = ReceiveSide()
    side.node.open_room(5, address=("127.0.0.1", int(sys.argv[1])), grants={"kv": np.arange(1024)})
    signal.pause()


main()
