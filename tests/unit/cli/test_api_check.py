from pathlib import Path

import pytest
from certificates import Certificates

from prfaas.api_keys import KeyEntry, key_digest, render_keys
from prfaas.api_section import ApiSection
from prfaas_cli.api_check import api_problems


@pytest.fixture
def section(tmp_path: Path) -> ApiSection:
    keys = tmp_path / "keys.toml"
    keys.write_text(render_keys({"a": KeyEntry(key_digest("pfs-a"))}))
    keys.chmod(0o644)
    files = Certificates(tmp_path / "certs").node("b-gateway-0")
    return ApiSection(keys_file=str(keys), cert=str(files.cert), key=str(files.key))


def test_good_files_are_good(section: ApiSection) -> None:
    assert list(api_problems(section)) == []
    assert list(api_problems(ApiSection())) == []


def test_what_lets_others_in_is_said(section: ApiSection) -> None:
    Path(section.keys_file).chmod(0o666)
    Path(section.key).chmod(0o644)
    keys, key = api_problems(section)
    assert "chmod go-w" in keys
    assert "chmod 600" in key


def test_what_stops_the_gateway_is_said(section: ApiSection) -> None:
    Path(section.keys_file).write_text('keys = "pfs-plain"')
    Path(section.key).write_text("nonsense")
    keys, key = api_problems(section)
    assert section.keys_file in keys
    assert "pfs-plain" not in keys
    assert section.key in key
    Path(section.keys_file).unlink()
    Path(section.cert).unlink()
    absent = list(api_problems(section))
    assert "prfaasctl keys add" in absent[0]
    assert section.cert in absent[1]
