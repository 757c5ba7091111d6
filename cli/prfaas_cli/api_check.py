"""What `node check` says of a gateway's port for clients."""

import ssl
from collections.abc import Iterator
from pathlib import Path

from prfaas.api_keys import parse_keys
from prfaas.api_section import ApiSection
from prfaas.errors import ConfigError
from prfaas_cli.pem_files import open_to_others


def api_problems(section: ApiSection) -> Iterator[str]:
    """Yield what would stop the gateway, or let others in."""
    if section.keys_file:
        yield from _keys_problems(Path(section.keys_file))
    if section.cert:
        yield from _tls_problems(section)


def _keys_problems(file: Path) -> Iterator[str]:
    try:
        parse_keys(file.read_text(), source=f"api.keys_file {file}")
        mode = file.stat().st_mode
    except ConfigError as error:
        yield str(error)
    except UnicodeDecodeError:
        yield f"api.keys_file {file}: not UTF-8 text"
    except OSError as error:
        yield f"api.keys_file {file}: {error.strerror}; make it with prfaasctl keys add"
    else:
        if mode & 0o022:
            yield f"api.keys_file {file}: others may write it, and so let themselves in; chmod go-w"


def _tls_problems(section: ApiSection) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(section.cert, section.key, password=lambda: "")
        if open_to_others(Path(section.key)):
            yield f"api.key {section.key}: others may read it; chmod 600"
    except ssl.SSLError as error:
        yield f"api.cert {section.cert}, api.key {section.key}: {error.reason or error}"
    except OSError as error:
        yield f"api.cert {section.cert}, api.key {section.key}: {error.strerror}"
