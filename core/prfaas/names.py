"""Names of nodes, regions and deployments: parts of file names, of etcd keys and of metrics."""

import re

from prfaas.errors import ConfigError

_NAME = re.compile(r"[a-z0-9-]{1,40}")


def is_name(value: str) -> bool:
    """Return whether a value may be a name."""
    return _NAME.fullmatch(value) is not None


def check_name(what: str, value: str) -> None:
    """Check a name before anything is made of it; `what` says whose it is.

    >>> check_name("NODE", "a-prefill-0")

    Raises:
        ConfigError: with what is allowed.
    """
    if not is_name(value):
        raise ConfigError(
            f"{what} {value!r}: allowed are 1 to 40 lowercase letters, digits and dashes"
        )
