"""How many connections the operating system lets the gateway hold."""

import logging
import resource

logger = logging.getLogger(__name__)

_FILES_PER_CONNECTION = 3
"""A client's connection, and those of the two legs of its request."""
_OTHER_FILES = 512


def allow_connections(count: int) -> bool:
    """Raise the limit of open files as far as so many connections need it; say if that is less.

    Return whether all fit. A lower limit ends nothing: connections wait until others end.
    """
    needed = count * _FILES_PER_CONNECTION + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return True
    fits = hard == resource.RLIM_INFINITY or hard >= needed
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed if fits else hard, hard))
    if not fits:
        logger.warning(
            "api.max_connections = %d may need %d open files, the limit is %d (ulimit -n)",
            count,
            needed,
            hard,
        )
    return fits
