"""What `deploy` is told of the gateway: who may use its port, how, and its other settings."""

import re
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from prfaas.api_section import ApiSection
from prfaas.api_section import api_problems as section_problems
from prfaas.config import (
    GatewaySection,
    NodeConfig,
    NodeSection,
    parse_node_config,
    render_node_config,
)
from prfaas.errors import ConfigError
from prfaas.records import Role
from prfaas_cli.place import Place

if TYPE_CHECKING:
    from prfaas_cli.options import DeployOptions

API_CERTIFICATE = "api"
"""Name of the certificate that the deployment's CA gives the port for clients."""
API_ADDRESSES = ("127.0.0.1", "localhost")

_SETTING = re.compile(r"(gateway|api)\.([a-z_]{1,64})=([0-9.e+]{1,32})")
#: What other options, or deploy itself, say.
_NOT_SETTINGS = frozenset({"threshold_tokens", "listen_fd"})
_END = "-----END CERTIFICATE-----"
_SECTIONS = {"gateway": GatewaySection, "api": ApiSection}


def settings_allowed() -> tuple[str, ...]:
    """Return the names that `--set` takes: every number of the gateway's two sections."""
    return tuple(
        f"{section}.{item.name}"
        for section, cls in _SECTIONS.items()
        for item in fields(cls)
        if item.type in (int, float) and item.name not in _NOT_SETTINGS
    )


def parse_settings(given: Sequence[str]) -> tuple[str, ...]:
    """Return settings in one order and one form, so that equal ones are equal.

    >>> parse_settings(["gateway.request_timeout_s=60", "api.max_connections=100"])
    ('api.max_connections=100', 'gateway.request_timeout_s=60.0')

    Raises:
        ConfigError: naming what is allowed.
    """
    found = {}
    for text in given:
        match = _SETTING.fullmatch(text)
        name = f"{match[1]}.{match[2]}" if match else ""
        if match is None or name not in settings_allowed():
            allowed = ", ".join(settings_allowed())
            raise ConfigError(
                f"--set {text!r:.80}: allowed: NAME=NUMBER, with NAME one of {allowed}"
            )
        if name in found:
            raise ConfigError(f"--set {name}: given twice")
        found[name] = str(_number(name, match[3]))
    return tuple(f"{name}={found[name]}" for name in sorted(found))


def gateway_sections(place: Place, options: "DeployOptions") -> tuple[GatewaySection, ApiSection]:
    """Return the sections `[gateway]` and `[api]`, without the inherited socket."""
    cert, key = api_certificate(place, options)
    gateway = GatewaySection(
        model_path=options.model_path, threshold_tokens=options.threshold_tokens
    )
    api = ApiSection(
        keys_file=options.api_keys, cert=cert, key=key, cors_origins=options.cors_origins
    )
    for setting in options.settings:
        name, _, value = setting.partition("=")
        section, _, key = name.partition(".")
        change = {key: _number(name, value)}
        if section == "gateway":
            gateway = replace(gateway, **change)  # type: ignore[arg-type]
        else:
            api = replace(api, **change)  # type: ignore[arg-type]
    return gateway, api


def api_certificate(place: Place, options: "DeployOptions") -> tuple[str, str]:
    """Return the files of the port's certificate and key, both empty without TLS."""
    if options.tls:
        return tuple(str(place.certificates / f"{API_CERTIFICATE}.{e}") for e in ("crt", "key"))  # type: ignore[return-value]
    return options.tls_cert, options.tls_key


def gateway_problems(options: "DeployOptions") -> Iterator[str]:
    """Yield what is wrong with the options of the gateway, without a look at files."""
    if bool(options.tls_cert) != bool(options.tls_key):
        yield "--tls-cert, --tls-key: one is given; TLS needs both"
    elif options.tls and options.tls_cert:
        yield "--tls: has the deployment's CA make a certificate; leave --tls-cert, --tls-key out"
    for problem in section_problems(ApiSection(cors_origins=options.cors_origins)):
        yield problem.replace("api.cors_origins", "--cors-origin")
    nowhere = Place(Path("/"), "x")
    gateway, api = gateway_sections(
        nowhere, replace(options, cors_origins=(), tls_cert="", tls_key="")
    )
    # The option of the threshold has its own check.
    gateway = replace(gateway, threshold_tokens=0)
    node = NodeSection("x", Role.GATEWAY, "x", "x")
    try:
        text = render_node_config(NodeConfig(node, gateway=gateway, api=api))
        parse_node_config(text, source="--set")
    except ConfigError as error:
        yield str(error)


def has_tls(options: "DeployOptions") -> bool:
    """Return whether the gateway's port speaks TLS."""
    return options.tls or bool(options.tls_cert)


def client_context(place: Place, options: "DeployOptions") -> ssl.SSLContext | None:
    """Return what prfaasctl connects to the gateway with; None where there is no TLS.

    Raises:
        ConfigError: the certificate's file cannot be used.
    """
    return pinned_context(Path(api_certificate(place, options)[0])) if has_tls(options) else None


def pinned_context(certificate: Path) -> ssl.SSLContext:
    """Return a context that trusts the one certificate of a file, whatever name it is for.

    The port is asked by its address, and a certificate of one's own names the public name.

    Raises:
        ConfigError: the file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        first = certificate.read_text().partition(_END)[0] + _END
        context.load_verify_locations(cadata=first)
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"certificate of the gateway {certificate}: {text}") from None
    return context


def _is_float(name: str) -> bool:
    section, _, key = name.partition(".")
    return any(item.name == key and item.type is float for item in fields(_SECTIONS[section]))


def _number(name: str, text: str) -> float | int:
    kind = float if _is_float(name) else int
    try:
        return kind(text)
    except ValueError:
        what = "a number" if kind is float else "a whole number"
        raise ConfigError(f"--set {name}={text}: not {what}") from None
