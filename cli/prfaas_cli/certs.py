"""`prfaasctl certs`: the CA of a deployment and the certificates of its nodes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from prfaas.errors import ConfigError
from prfaas.names import check_name
from prfaas_cli.failures import ProblemsError
from prfaas_cli.place import JsonOption

app = typer.Typer(help="The CA of a deployment and its nodes' certificates.", no_args_is_help=True)

_MAX_DAYS = 36500
_FAULTY = 1

DirectoryOption = Annotated[
    Path, typer.Option("--dir", envvar="PRFAAS_CERTS_DIR", help="Where the certificates are.")
]
DaysOption = Annotated[int, typer.Option("--days", help="How long what is made now is valid.")]
NewKeyOption = Annotated[bool, typer.Option("--new-key", help="Make a new key as well.")]
DEFAULT_DIRECTORY = Path("certs")


@app.command("init")
def init(
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    deployment: Annotated[str, typer.Option(help="The deployment that the CA is for.")] = "default",
    days: DaysOption = 3650,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new CA; the old one stays trusted.")
    ] = False,
    retire: Annotated[
        bool, typer.Option("--retire", help="Trust only the CA that signs now.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the CA, or do nothing where there is one; replace it in two steps."""
    from prfaas_cli.authority import Authority
    from prfaas_cli.pem_files import locked

    check_name("--deployment", deployment)
    _check_days("--days", days)
    if rotate and retire:
        raise ConfigError("--rotate and --retire are two steps; between them run certs renew")
    authority = Authority(directory.absolute())
    with locked(authority.directory):
        if rotate:
            authority.rotate(days=days)
            done = "new CA; hand out ca.crt, run certs renew, then certs init --retire"
        elif retire:
            done = f"{authority.retire()} old CAs are trusted no more; hand out ca.crt"
        else:
            made = authority.create(deployment, days=days)
            done = "made" if made else "unchanged"
        _give(authority, f"CA in {authority.directory}: {done}", as_json=as_json)


@app.command("issue")
def issue(
    node: Annotated[str, typer.Argument(help="The node's name, as in node.name.")],
    region: Annotated[str, typer.Option(help="The node's region.")],
    address: Annotated[
        list[str] | None, typer.Option(help="An address or DNS name; repeat for more.")
    ] = None,
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    days: DaysOption = 90,
    new_key: NewKeyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give a node its key and certificate; do nothing where it has good ones."""
    from prfaas_cli.authority import Authority
    from prfaas_cli.pem_files import locked

    _check_node(node)
    check_name("--region", region)
    _check_days("--days", days)
    authority = Authority(directory.absolute())
    with locked(authority.directory):
        made = authority.issue(
            node, region=region, addresses=address or (), days=days, new_key=new_key
        )
        _give(authority, f"{node}: {'issued' if made else 'unchanged'}", as_json=as_json)


@app.command("renew")
def renew(
    nodes: Annotated[list[str] | None, typer.Argument(help="Nodes; all without any.")] = None,
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    before: Annotated[float, typer.Option(help="Renew what ends within so many days.")] = 30,
    days: DaysOption = 90,
    new_key: NewKeyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Renew certificates that end soon, or that an old CA signed."""
    from prfaas_cli.authority import Authority
    from prfaas_cli.pem_files import locked

    _check_days("--days", days)
    for node in nodes or ():
        _check_node(node)
    authority = Authority(directory.absolute())
    with locked(authority.directory):
        renewed = [
            node
            for node in nodes or authority.nodes()
            if authority.renew(node, before_days=before, days=days, new_key=new_key)
        ]
        _give(authority, f"renewed: {', '.join(renewed) or 'none'}", as_json=as_json)


@app.command("show")
def show(directory: DirectoryOption = DEFAULT_DIRECTORY, as_json: JsonOption = False) -> None:
    """Show the CAs and certificates, and how long they are valid."""
    from prfaas_cli.authority import Authority

    _give(Authority(directory.absolute()), "", as_json=as_json)


@app.command("verify")
def verify(directory: DirectoryOption = DEFAULT_DIRECTORY, as_json: JsonOption = False) -> None:
    """Check signatures, dates, identities, keys and file modes; exit 1 if anything is wrong."""
    from prfaas_cli.authority import Authority

    authority = Authority(directory.absolute())
    wrong = authority.verify()
    if wrong:
        raise ProblemsError(wrong, exit_code=_FAULTY)
    _give(authority, f"{len(authority.nodes())} certificates are good", as_json=as_json)


def _give(authority: Any, line: str, *, as_json: bool) -> None:
    from prfaas_cli.output import Output, table

    document = authority.describe()
    rows = [["name", "days left", "identity", "addresses"]]
    rows += [
        [ca["name"], f"{ca['days_left']:.0f}", "signs" if ca["signs"] else "trusted", ""]
        for ca in document["authorities"]
    ]
    rows += [
        [c["node"], f"{c['days_left']:.0f}", c["identity"], ",".join(c["addresses"])]
        for c in document["certificates"]
    ]
    lines = [line] if line else table(rows)
    Output(as_json=as_json).result(document, lambda: lines)


def _check_node(node: str) -> None:
    check_name("NODE", node)
    if node == "ca":
        raise ConfigError("NODE ca: the CA's files have that name")


def _check_days(option: str, value: int) -> None:
    if not 1 <= value <= _MAX_DAYS:
        raise ConfigError(f"{option} {value}: allowed is 1 to {_MAX_DAYS}")
