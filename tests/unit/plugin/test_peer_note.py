from typing import Any

import pytest

from prfaas.transfer_section import LocalBackend
from prfaas_plugin import local_backend
from prfaas_plugin.local_backend import package_problem
from prfaas_plugin.peer_note import PeerNote
from prfaas_plugin.settings import read_settings

NOTE = PeerNote(rank=1, region="b", backend="nixl", host="10.0.0.2", port=4000)


def test_a_note_survives_its_json() -> None:
    assert PeerNote.parse(NOTE.to_json()) == NOTE


@pytest.mark.parametrize(
    "change",
    [
        {"rank": -1},
        {"rank": True},
        {"port": 65536},
        {"port": "4000"},
        {"region": None},
        {"backend": 5},
        {"host": "x" * 256},
    ],
)
def test_what_is_no_note_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="are"):
        PeerNote.parse(NOTE.to_json() | change)
    with pytest.raises(ValueError, match="JSON object"):
        PeerNote.parse([change])


def test_the_settings_name_region_and_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().transfer.local_backend is LocalBackend.LANES
    monkeypatch.setenv("PRFAAS_TRANSFER", '{"local_backend": "mooncake"}')
    monkeypatch.setenv("PRFAAS_REGION", "b")
    settings = read_settings()
    assert (settings.region, settings.transfer.local_backend) == ("b", LocalBackend.MOONCAKE)


def test_a_backend_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [package_problem(backend) for backend in LocalBackend] == [None, None, None]
    monkeypatch.setitem(local_backend._PACKAGES, LocalBackend.NIXL, ("nowhere", "prfaas[nixl]"))
    problem = package_problem(LocalBackend.NIXL)
    assert problem is not None
    assert problem.endswith("pip install 'prfaas[nixl]'")
