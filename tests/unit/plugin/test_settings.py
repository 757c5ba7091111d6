import pytest

from prfaas.config import TransferSection
from prfaas.errors import ConfigError, PrfaasError
from prfaas_plugin import settings, version


def test_without_an_agent_the_defaults_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRFAAS_NODE", "PRFAAS_TRANSFER", "PRFAAS_STATS_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    assert settings.read_settings() == settings.PluginSettings("engine", TransferSection(), "")


def test_the_agents_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRFAAS_NODE", "a-prefill-0")
    monkeypatch.setenv("PRFAAS_TRANSFER", '{"lanes": 2, "blank_groups": ["kv"]}')
    read = settings.read_settings()
    assert read.node == "a-prefill-0"
    assert read.transfer == TransferSection(lanes=2, blank_groups=("kv",))


@pytest.mark.parametrize("text", ["{", "[]", '"x"', '{"lames": 2}'])
def test_bad_settings_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PRFAAS_TRANSFER", text)
    with pytest.raises(ConfigError, match="PRFAAS_TRANSFER"):
        settings.read_settings()


def test_another_sglang_is_refused_with_the_supported_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", lambda _name: "0.5.22")
    with pytest.raises(PrfaasError, match=r"0\.5\.22 is not supported; install sglang==0\.5\.23"):
        version.check_sglang_version()
