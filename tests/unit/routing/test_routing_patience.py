import pytest

from prfaas.routing import patience_s


@pytest.mark.parametrize(
    ("left_s", "expected_s", "patience"),
    [
        (600.0, None, 300.0),  # nothing is known: half the time left
        (600.0, 0.0, 10.0),
        (600.0, 3.0, 15.0),
        (600.0, 100.0, 300.0),  # never more than leaves time for the fallback
        (12.0, 3.0, 6.0),
        (0.0, 3.0, 0.0),
    ],
)
def test_patience(left_s: float, expected_s: float | None, patience: float) -> None:
    assert patience_s(left_s, expected_s) == patience
