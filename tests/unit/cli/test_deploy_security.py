"""What `deploy --security` gives to whom."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from test_deploy_plan import OPTIONS

from prfaas.config import SecurityMode, SecuritySection, parse_node_config
from prfaas_agent.security_checks import security_problems
from prfaas_cli.credentials import OPERATOR, operator_context, write_credentials
from prfaas_cli.failures import ProblemsError
from prfaas_cli.options import DeployOptions, check_options
from prfaas_cli.place import Place
from prfaas_cli.process_plan import DeployPlan, etcd_name, plan_deployment

MTLS = replace(OPTIONS, security="mtls")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path, "dev")
    made.directory.mkdir()
    return made


def plan(place: Place, options: DeployOptions) -> DeployPlan:
    return plan_deployment(place, options, etcd="/bin/etcd", start_timeout_s=100.0)


def etcd_arguments(made: DeployPlan) -> tuple[str, ...]:
    return next(spec.argv for spec in made.processes if spec.name == etcd_name(OPTIONS))


def test_security_is_off_unless_asked_for(place: Place) -> None:
    made = plan(place, OPTIONS)
    assert {config.security for config in made.nodes} == {SecuritySection()}
    assert not any("cert" in argument for argument in etcd_arguments(made))
    write_credentials(place, OPTIONS, made.nodes, etcd=etcd_name(OPTIONS))
    assert list(place.directory.iterdir()) == []
    assert operator_context(place, OPTIONS) is None


def test_with_mtls_every_node_has_a_certificate_that_its_agent_takes(place: Place) -> None:
    made = plan(place, MTLS)
    assert operator_context(place, MTLS) is None  # nothing is deployed yet
    for _ in range(2):
        write_credentials(place, MTLS, made.nodes, etcd=etcd_name(MTLS))
    texts = made.config_texts()
    for config in made.nodes:
        assert config.security.mode is SecurityMode.MTLS
        assert security_problems(config) == []
        assert parse_node_config(texts[config.node.name], source="x") == config
    assert len({config.security.cert for config in made.nodes}) == len(made.nodes)
    arguments = " ".join(etcd_arguments(made))
    assert "--client-cert-auth" in arguments
    assert "--listen-client-urls https://" in arguments
    assert (place.certificates / f"{OPERATOR}.crt").exists()
    assert isinstance(operator_context(place, MTLS), ssl.SSLContext)


def test_with_a_secret_all_nodes_share_it(place: Place) -> None:
    options = replace(OPTIONS, security="secret")
    made = plan(place, options)
    write_credentials(place, options, made.nodes, etcd=etcd_name(options))
    first = place.secret_file.read_text()
    write_credentials(place, options, made.nodes, etcd=etcd_name(options))
    assert place.secret_file.read_text() == first
    for config in made.nodes:
        assert config.security == SecuritySection(
            SecurityMode.SECRET, secret_file=str(place.secret_file)
        )
        assert security_problems(config) == []
    place.secret_file.chmod(0o644)
    assert "chmod 600" in security_problems(made.nodes[0])[0]
    place.secret_file.write_text("short")
    assert "a secret needs 32 bytes" in security_problems(made.nodes[0])[0]


def test_another_mode_is_refused() -> None:
    with pytest.raises(ProblemsError, match="--security tls: allowed: off, secret, mtls"):
        check_options("dev", replace(OPTIONS, security="tls"), timeout_s=10)
    assert OPTIONS.differences(MTLS) == ["--security: off -> mtls"]
