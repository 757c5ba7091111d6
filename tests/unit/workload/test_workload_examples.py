"""The examples in docstrings hold."""

import doctest
from importlib import import_module

import pytest

MODULES = (
    "prfaas.profile.curve",
    "prfaas.workload.arrivals",
    "prfaas.workload.lengths",
    "prfaas.workload.prefix_hits",
    "prfaas.workload.sharing",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
