import pytest

from prfaas.config import SecurityMode, SecuritySection
from prfaas.errors import ConfigError, PrfaasError
from prfaas.identity import Identity
from prfaas.transfer_section import Pipelining, TransferSection
from prfaas_plugin import settings, version


def test_without_an_agent_the_defaults_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NODE", "TRANSFER", "STATS_SOCKET", "SECURITY", "IDENTITY"):
        monkeypatch.delenv(f"PRFAAS_{name}", raising=False)
    assert settings.read_settings() == settings.PluginSettings(
        "engine", TransferSection(), "", SecuritySection(), None
    )


def test_the_agents_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRFAAS_NODE", "a-prefill-0")
    monkeypatch.setenv("PRFAAS_TRANSFER", '{"lanes": 2, "blank_groups": ["kv"]}')
    read = settings.read_settings()
    assert read.node == "a-prefill-0"
    assert read.transfer == TransferSection(lanes=2, blank_groups=("kv",))
    assert (TransferSection().lanes, TransferSection().chunk_bytes) == (0, 0)
    monkeypatch.setenv("PRFAAS_TRANSFER", '{"pipelining": "chunk"}')
    assert settings.read_settings().transfer.pipelining is Pipelining.CHUNK


def test_the_agents_security_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"mode": "mtls", "ca": "ca.crt", "cert": "n.crt", "key": "n.key"}'
    monkeypatch.setenv("PRFAAS_SECURITY", text)
    monkeypatch.setenv("PRFAAS_IDENTITY", "prfaas://demo/a/n")
    read = settings.read_settings()
    assert read.security == SecuritySection(SecurityMode.MTLS, "ca.crt", "n.crt", "n.key")
    assert read.identity == Identity("demo", "a", "n")
    assert read.checksums is None
    monkeypatch.setenv("PRFAAS_SECURITY", '{"mode": "secret", "secret_file": "f"}')
    assert settings.read_settings().checksums is None
    monkeypatch.setenv("PRFAAS_TRANSFER", '{"digests": "off"}')
    assert settings.read_settings().checksums is False


def test_tls_needs_to_know_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRFAAS_SECURITY", '{"mode": "mtls"}')
    monkeypatch.delenv("PRFAAS_IDENTITY", raising=False)
    with pytest.raises(ConfigError, match="prfaas://DEPLOYMENT/REGION/NODE"):
        settings.read_settings()


@pytest.mark.parametrize("variable", ["PRFAAS_TRANSFER", "PRFAAS_SECURITY"])
@pytest.mark.parametrize("text", ["{", "[]", '"x"', '{"lames": 2}', '{"mode": "on"}'])
def test_bad_settings_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=variable):
        settings.read_settings()


def test_another_sglang_is_refused_with_the_supported_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", lambda _name: "0.5.22")
    with pytest.raises(PrfaasError, match=r"0\.5\.22 is not supported; install sglang==0\.5\.23"):
        version.check_sglang_version()
