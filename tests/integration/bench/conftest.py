"""The modules of the benchmark, for the tests here."""

import transport_bench  # noqa: F401
