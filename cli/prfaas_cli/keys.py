"""`prfaasctl keys`: the API keys of a gateway's clients, as digests in a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from prfaas.api_keys import (
    KEY_PREFIX,
    KeyEntry,
    KeyRole,
    check_entry,
    key_digest,
    parse_keys,
    render_keys,
)
from prfaas.errors import ConfigError, StateError
from prfaas.names import check_name
from prfaas_cli.place import JsonOption

app = typer.Typer(
    help="API keys of a gateway's clients: add, list, revoke. Gateways read the file again.",
    no_args_is_help=True,
)

FileOption = Annotated[
    Path,
    typer.Option("--file", envvar="PRFAAS_KEYS_FILE", help="The keys file: api.keys_file."),
]
DEFAULT_FILE = Path("keys.toml")
_SECRET_BYTES = 32


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="What the key is called, in lists and metrics.")],
    role: Annotated[KeyRole, typer.Option(help="What its holder may do.")] = KeyRole.CLIENT,
    tenant: Annotated[
        str, typer.Option(help="Whose its requests are; '*': who their header says.")
    ] = "",
    requests_per_s: Annotated[float, typer.Option(help="Limit per gateway; 0: none.")] = 0.0,
    concurrent_requests: Annotated[int, typer.Option(help="Limit per gateway; 0: none.")] = 0,
    tokens_per_minute: Annotated[
        int, typer.Option(help="Prompt and output tokens, per gateway; 0: no limit.")
    ] = 0,
    file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Make a key and show it, this once: the file keeps its digest only."""
    import secrets

    from prfaas_cli.output import Output

    key = KEY_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    entry = KeyEntry(
        key_digest(key), role, tenant, requests_per_s, concurrent_requests, tokens_per_minute
    )
    check_name("NAME", name)
    check_entry(name, entry)
    with _changing(file) as keys:
        if name in keys:
            raise StateError(f"{file}: there is a key {name}; revoke it first, or choose a name")
        keys[name] = entry
    Output(as_json=as_json).result({"name": name, "key": key}, lambda: [key])


@app.command("list")
def list_keys(file: FileOption = DEFAULT_FILE, as_json: JsonOption = False) -> None:
    """Show the keys' names, roles and limits."""
    from prfaas_cli.output import Output

    keys = _read(file)
    document = {"keys": [_described(name, entry) for name, entry in keys.items()]}
    Output(as_json=as_json).result(document, lambda: _lines(document["keys"]))


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="The key's name.")],
    file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Take a key out; gateways refuse it within a second."""
    from prfaas_cli.output import Output

    with _changing(file) as keys:
        if keys.pop(name, None) is None:
            raise StateError(f"{file}: no key {name!r:.60}; there is: {', '.join(keys) or 'none'}")
    Output(as_json=as_json).result({"revoked": name}, lambda: [f"{name}: revoked"])


@contextmanager
def _changing(file: Path) -> Iterator[dict[str, KeyEntry]]:
    """Give the keys of a file, and write them back where the context ends well."""
    from prfaas_cli.pem_files import KEY_MODE, locked, write_whole

    with locked(file.absolute().parent):
        keys = _read(file)
        yield keys
        # Whoever made it readable to the gateway's user meant it.
        mode = file.stat().st_mode & 0o777 if file.exists() else KEY_MODE
        write_whole(file, render_keys(keys).encode(), mode=mode)


def _read(file: Path) -> dict[str, KeyEntry]:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8 text") from None
    except OSError as error:
        raise StateError(f"cannot read {file}: {error.strerror}") from None
    return dict(parse_keys(text, source=str(file)).keys)


def _described(name: str, entry: KeyEntry) -> dict[str, Any]:
    return {
        "name": name,
        "role": str(entry.role),
        "tenant": entry.tenant,
        "requests_per_s": entry.requests_per_s,
        "concurrent_requests": entry.concurrent_requests,
        "tokens_per_minute": entry.tokens_per_minute,
    }


def _lines(keys: list[dict[str, Any]]) -> Iterator[str]:
    from prfaas_cli.output import table

    if not keys:
        yield "no keys"
        return
    rows = [["NAME", "ROLE", "TENANT", "REQUESTS/S", "CONCURRENT", "TOKENS/MIN"]]
    for key in keys:
        name, role, tenant, *limits = key.values()
        rows.append(
            [name, role, tenant or "-", *(f"{limit:g}" if limit else "-" for limit in limits)]
        )
    yield from table(rows)
