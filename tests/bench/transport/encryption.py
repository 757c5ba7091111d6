"""What TLS costs: channels against the cipher's own speed, and the certificates of TLS lanes."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.path += [str(TESTS / "support"), str(TESTS / "bench" / "security")]

import certificates  # noqa: E402
import tls_channels  # noqa: E402
from endpoints import Certificates  # noqa: E402
from rows import Rows  # noqa: E402

from prfaas_transport.channel import ChannelFactory, PlainChannels  # noqa: E402
from prfaas_transport.tls import TlsChannels  # noqa: E402

DEPLOYMENT = certificates.DEPLOYMENT
CIPHER = "aes-256-gcm"
TOTAL_BYTES = 1 << 30


def lane_certificates(folder: Path) -> Certificates:
    """Issue what the two sides of TLS lanes need, in a folder."""
    issued = certificates.Certificates(folder)
    sides = []
    for name in ("bench-send", "bench-receive"):
        files = issued.node(name)
        paths = {field: str(getattr(files, field)) for field in ("ca", "cert", "key")}
        sides.append({**paths, "deployment": DEPLOYMENT})
    return Certificates(*sides)


def channel_cost(rows: Rows, case: str, folder: Path, repeats: int) -> None:
    """Move bytes through one plain and one TLS channel, in turns; compare with the cipher alone."""
    issued = certificates.Certificates(folder)
    client, server = (
        TlsChannels(issued.node(name), deployment=DEPLOYMENT) for name in ("decode", "prefill")
    )
    plain = PlainChannels()
    pairs: dict[str, tuple[ChannelFactory, ChannelFactory]] = {
        "plain channel": (plain, plain),
        "TLS channel": (client, server),
    }
    figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in pairs}
    for _ in range(repeats):
        for name, pair in pairs.items():
            figures[name].append(tls_channels.measure(*pair, TOTAL_BYTES))
    cipher_s = 1 / tls_channels.openssl_gb_per_s(CIPHER)
    rows.add(case, f"openssl {CIPHER}", "cpu_per_gb", cipher_s, "s/GB")
    for at, side in ((1, "send"), (2, "receive")):
        middle = {
            name: rows.spread(case, name, f"{side}_cpu_per_gb", [f[at] for f in known], "s/GB")
            for name, known in figures.items()
        }
        added_s = middle["TLS channel"] - middle["plain channel"]
        rows.add(case, "TLS channel", f"{side}: added / cipher alone", added_s / cipher_s, "ratio")
