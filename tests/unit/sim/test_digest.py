"""A digest differs as soon as one value of one column does."""

from dataclasses import fields, replace

import numpy as np
import pytest

from prfaas.sim.digest import digest
from prfaas.sim.record import Columns

COLUMNS = Columns(**{field.name: np.arange(4.0) for field in fields(Columns)})


@pytest.mark.parametrize("name", [field.name for field in fields(Columns)])
def test_every_column_counts(name: str) -> None:
    changed = np.arange(4.0)
    changed[2] = np.nextafter(2.0, 3.0)
    assert digest(replace(COLUMNS, **{name: changed})) != digest(COLUMNS)
    assert digest(replace(COLUMNS, **{name: np.arange(4.0)})) == digest(COLUMNS)
