"""What `deploy` tells the gateway: keys, TLS, origins, its other numbers."""

import socket
import ssl
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from test_deploy_plan import OPTIONS

from prfaas.config import NodeConfig, parse_node_config
from prfaas.errors import ConfigError
from prfaas_cli.api_check import api_problems
from prfaas_cli.authority import Authority
from prfaas_cli.credentials import write_credentials
from prfaas_cli.deploy_gateway import (
    api_certificate,
    client_context,
    parse_settings,
    pinned_context,
    settings_allowed,
)
from prfaas_cli.deploy_lines import plan_lines, result_lines
from prfaas_cli.failures import ProblemsError
from prfaas_cli.options import DeployOptions, check_options
from prfaas_cli.place import Place
from prfaas_cli.process_plan import api_url, etcd_name, plan_deployment

OPEN = replace(
    OPTIONS,
    api_keys="/etc/keys.toml",
    tls=True,
    cors_origins=("https://chat.example",),
    settings=parse_settings(["gateway.drain_s=30", "api.max_connections=100"]),
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path, "dev")
    made.directory.mkdir()
    return made


def gateway_of(place: Place, options: DeployOptions) -> NodeConfig:
    made = plan_deployment(place, options, etcd="/bin/etcd", start_timeout_s=100.0)
    found = made.nodes[-1]
    assert parse_node_config(made.config_texts()[found.node.name], source="x") == found
    return found


def test_the_gateway_gets_what_was_asked_for(place: Place) -> None:
    config = gateway_of(place, OPEN)
    assert config.gateway is not None
    assert config.gateway.drain_s == 30.0
    assert config.gateway.threshold_tokens == OPEN.threshold_tokens
    assert config.gateway.listen_fd >= 0
    assert (config.api.keys_file, config.api.max_connections) == ("/etc/keys.toml", 100)
    assert config.api.cors_origins == ("https://chat.example",)
    assert (config.api.cert, config.api.key) == api_certificate(place, OPEN)
    assert api_url(OPEN) == "https://127.0.0.1:8080"
    plain = gateway_of(place, OPTIONS)
    assert (plain.api.keys_file, plain.api.cert, plain.api.cors_origins) == ("", "", ())
    assert api_url(OPTIONS) == "http://127.0.0.1:8080"


def test_another_deploy_says_what_differs() -> None:
    assert DeployOptions.from_json(OPEN.to_json()) == OPEN
    assert OPTIONS.differences(OPEN) == [
        "--api-keys: none -> /etc/keys.toml",
        "--tls: False -> True",
        "--cors-origin: none -> https://chat.example",
        "--set: none -> api.max_connections=100,gateway.drain_s=30.0",
    ]
    same = parse_settings(["api.max_connections=100", "gateway.drain_s=30.0"])
    assert replace(OPEN, settings=same) == OPEN


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tls_cert": "/c"}, "--tls-cert, --tls-key: one is given"),
        ({"tls_key": "/k"}, "--tls-cert, --tls-key: one is given"),
        ({"tls": True, "tls_cert": "/c", "tls_key": "/k"}, "--tls: has the deployment's CA"),
        ({"cors_origins": ("chat.example",)}, "--cors-origin: 'chat.example'"),
        ({"settings": ("gateway.request_timeout_s=0.0",)}, "gateway.request_timeout_s = 0.0"),
    ],
)
def test_what_does_not_go_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemsError) as refused:
        check_options("dev", replace(OPTIONS, **changes), timeout_s=60.0)
    assert len(refused.value.problems) == 1
    assert said in refused.value.problems[0]


@pytest.mark.parametrize(
    "given",
    [
        ["gateway.listen_fd=3"],
        ["gateway.model_path=/x"],
        ["api.keys_file=/x"],
        ["request_timeout_s=3"],
        ["api.max_connections=1.5"],
        ["api.max_connections=1\nkey = 2"],
        ["api.idle_timeout_s=1", "api.idle_timeout_s=2"],
    ],
)
def test_only_numbers_of_the_gateway_can_be_set(given: list[str]) -> None:
    with pytest.raises(ConfigError, match="--set"):
        parse_settings(given)


def test_the_api_page_names_what_can_be_set() -> None:
    page = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
    for name in settings_allowed():
        assert name.partition(".")[2] in page, name


def test_the_deployments_own_ca_signs_the_port_and_no_other_node(place: Place) -> None:
    for _ in range(2):  # the second changes nothing
        write_credentials(place, OPEN, (), etcd=etcd_name(OPEN))
    assert Authority(place.certificates).nodes() == ["api"]
    section = gateway_of(place, OPEN).api
    assert list(api_problems(replace(section, keys_file=""))) == []


def test_commands_trust_the_deployed_certificate_and_no_other(place: Place) -> None:
    write_credentials(place, OPEN, (), etcd=etcd_name(OPEN))
    context = client_context(place, OPEN)
    assert context is not None
    assert shakes_hands(context, *api_certificate(place, OPEN))
    other = Certificates(place.directory / "other").node("api", addresses=("127.0.0.1",))
    assert not shakes_hands(context, str(other.cert), str(other.key))
    sister = Authority(place.certificates)
    sister.issue("b-decode-0", region="b", addresses=["127.0.0.1"], days=9)
    files = (sister.certificate_file("b-decode-0"), sister.node_key_file("b-decode-0"))
    assert not shakes_hands(context, *map(str, files))
    own = replace(OPTIONS, tls_cert=str(other.cert), tls_key=str(other.key))
    found = client_context(place, own)
    assert found is not None
    assert shakes_hands(found, str(other.cert), str(other.key))
    assert client_context(place, OPTIONS) is None
    with pytest.raises(ConfigError, match="No such file"):
        pinned_context(place.directory / "none")


def shakes_hands(context: ssl.SSLContext, cert: str, key: str) -> bool:
    """Say whether a client takes a server's certificate, over a pair of sockets."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    left, right = socket.socketpair()
    left.settimeout(20)
    right.settimeout(20)

    def serve() -> None:
        try:
            server.wrap_socket(left, server_side=True).close()
        except OSError:
            left.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        context.wrap_socket(right, server_hostname="127.0.0.1").close()
    except ssl.SSLCertVerificationError:
        return False
    finally:
        right.close()
        thread.join()
    return True


def test_what_deploy_says_shows_how_to_go_on(place: Place) -> None:
    said = "\n".join(plan_lines(place, OPEN))
    assert "API: keys of /etc/keys.toml; TLS by a certificate of the deployment;" in said
    after = "\n".join(result_lines(place, OPEN, "deployed", times={}, elapsed_s=1.0))
    assert "prfaasctl --api-key-file KEY chat" in after
    assert str(place.certificates / "ca.crt") in after
