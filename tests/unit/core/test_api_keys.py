import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.api_keys import (
    KeyEntry,
    KeyRole,
    KeysFile,
    check_entry,
    key_digest,
    parse_keys,
    render_keys,
)
from prfaas.errors import ConfigError

DIGEST = key_digest("pfs-secret")
names = st.from_regex(r"[a-z0-9-]{1,40}", fullmatch=True)
entries = st.builds(
    KeyEntry,
    sha256=st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    role=st.sampled_from(KeyRole),
    tenant=st.one_of(st.just(""), st.just("*"), names),
    requests_per_s=st.floats(0, 1e6),
    concurrent_requests=st.integers(0, 1 << 40),
    tokens_per_minute=st.integers(0, 1 << 40),
)


@given(st.dictionaries(names, entries, max_size=5))
def test_what_is_written_is_read_back(keys: dict[str, KeyEntry]) -> None:
    by_digest = {entry.sha256: name for name, entry in keys.items()}
    keys = {name: entry for name, entry in keys.items() if by_digest[entry.sha256] == name}
    assert parse_keys(render_keys(keys), source="k") == KeysFile(keys)


def test_a_file_without_keys_has_none() -> None:
    assert parse_keys("", source="k").keys == {}
    assert parse_keys("[keys]\n", source="k").keys == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[keys.a]\n", "keys.a.sha256: missing"),
        ('[keys.a]\nsha256 = "pfs-plain"', "keys.a.sha256: expected 64"),
        ("[keys.a]\nsha256 = 5", "keys.a.sha256: expected 64"),
        ('[keys]\na = "pfs-plain"', r"keys.a: expected a table \[keys.NAME\]"),
        ('keys = "pfs-plain"', "expected a table"),
        ('secret = "pfs-plain"', "expected only tables"),
        (f'[keys.a]\nsha256 = "{DIGEST}"\nkey = "pfs-plain"', "keys.a.key: unknown key; allowed"),
        (f'[keys.A]\nsha256 = "{DIGEST}"', "lowercase letters"),
        (f'[keys.a]\nsha256 = "{DIGEST}"\ntenant = "A b"', "keys.a.tenant"),
        (f'[keys.a]\nsha256 = "{DIGEST}"\nrequests_per_s = -1', "keys.a.requests_per_s"),
        (f'[keys.a]\nsha256 = "{DIGEST}"\nrequests_per_s = nan', "keys.a.requests_per_s"),
        (f'[keys.a]\nsha256 = "{DIGEST}"\n[keys.b]\nsha256 = "{DIGEST}"', "same key as keys.a"),
        ('[keys.a]\nsha256 = "pfs-plain', "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_without_the_value(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_keys(text, source="keys.toml")
    assert str(caught.value).startswith("keys.toml: ")
    assert "pfs-plain" not in str(caught.value)


def test_a_limit_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="tokens_per_minute"):
        check_entry("a", KeyEntry(DIGEST, tokens_per_minute=-5))
