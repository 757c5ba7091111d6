"""How long an offload may take before it is given up and the prompt is prefilled at home."""

SHARE = 0.5
"""Of the time left: the rest is for the fallback."""
TIMES = 5.0
"""As long as it should take; queues that others make, and links that fill, are no hang."""
LEAST_S = 10.0


def patience_s(left_s: float, expected_s: float | None) -> float:
    """Return the seconds until an offload is given up.

    `left_s` is the time until the request's deadline; `expected_s` how long the node takes for all
    that it was given, this prompt too, None while its pace is unknown. A node that hangs is told
    from one that is busy by that alone.

    >>> patience_s(600.0, None), patience_s(600.0, 4.0), patience_s(600.0, 0.2)
    (300.0, 20.0, 10.0)
    """
    most_s = left_s * SHARE
    return most_s if expected_s is None else min(most_s, max(TIMES * expected_s, LEAST_S))
