"""SSH keys, of hosts and of who may enter them."""

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from prfaas_cli.pem_files import KEY_MODE, write_whole


def write_key(path: Path, *, comment: str) -> None:
    """Make a key and its `.pub` beside it; one that is there stays.

    Raises:
        StateError: it cannot be written.
    """
    public = path.with_suffix(".pub")
    if path.exists() and public.exists():
        return
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    line = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, private, mode=KEY_MODE)
    write_whole(public, line + b" " + comment.encode() + b"\n", mode=0o644)


def public_line(path: Path) -> str:
    """Return the public half of a key that `write_key` made, as one line."""
    return path.with_suffix(".pub").read_text().strip()
