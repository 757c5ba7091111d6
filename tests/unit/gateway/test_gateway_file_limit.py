import resource

import pytest

from prfaas_gateway.file_limit import allow_connections


@pytest.mark.parametrize(
    ("soft", "hard", "after", "fits"),
    [
        (1024, 524288, 3512, True),
        (1024, 2048, 2048, False),
        (4096, 4096, None, True),
        (1024, resource.RLIM_INFINITY, 3512, True),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, True),
    ],
)
def test_the_limit_is_raised_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int | None, fits: bool
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: made.append(limits))
    assert allow_connections(1000) is fits
    assert made == ([] if after is None else [(after, hard)])
