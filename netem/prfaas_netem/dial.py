"""`python -m prfaas_netem.dial NAMESPACE HOST PORT`: connect in a namespace, hand over the socket.

The socket goes to the standard output, which must be a Unix socket: OpenSSH's `ProxyCommand` with
`ProxyUseFdpass yes`. So nothing stands between ssh and its peer afterwards.
"""

import socket
import sys
from collections.abc import Sequence

from prfaas.errors import PrfaasError
from prfaas_netem.namespace import enter

_TIMEOUT_S = 10.0


def main(argv: Sequence[str]) -> int:
    """Connect and hand over; return an exit status."""
    if len(argv) != 3 or not argv[2].isdigit():
        sys.stderr.write("usage: python -m prfaas_netem.dial NAMESPACE HOST PORT\n")
        return 2
    try:
        enter(argv[0])
        with socket.create_connection((argv[1], int(argv[2])), timeout=_TIMEOUT_S) as connection:
            connection.setblocking(True)
            with socket.socket(fileno=1) as channel:
                socket.send_fds(channel, [b"\0"], [connection.fileno()])
    except PrfaasError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"cannot connect to {argv[1]}:{argv[2]}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
