"""`prfaasctl profile show` and `list`: what a profile says, and which profiles there are."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prfaas.errors import ConfigError
from prfaas_cli.place import JsonOption

if TYPE_CHECKING:
    from prfaas.profile import Curve, InstanceProfile
    from prfaas.profile.document import ProfileDocument

_K = 1024
#: Against what the paper's Table 3 implies, for the two models where both are known.
_OPTIMISTIC = (
    "an estimate, and optimistic: kernel times alone, without the fixed cost of a request (~0.4 s"
    " in the paper). At 1K / 8K / 32K / 128K such estimates were 12 / 32 / 55 / 64 %"
    " (Qwen3.5-397B) and 6 / 20 / 38 / 67 % (MiMo-V2-Flash) of the paper's T_prefill on 8x H200."
    " Prefer `profile run`"
)
_LENGTHS = (1 * _K, 8 * _K, 32 * _K, 128 * _K)


def show(
    profile: Annotated[str, typer.Argument(help="A name from `profile list`, or a profile file.")],
    as_json: JsonOption = False,
    as_file: Annotated[
        bool, typer.Option("--file", help="Print it as a profile file, to copy and change.")
    ] = False,
) -> None:
    """Show S_kv, T_prefill, KV throughput and decode steps of a profile, and its source."""
    from prfaas_cli.output import Output
    from prfaas_cli.profile_files import load_profile

    if as_file and as_json:
        raise ConfigError("--file: not with --json: a profile file is JSON of a form of its own")
    document = load_profile(profile)
    if as_file:
        from prfaas.profile.document import render_profile

        sys.stdout.write(render_profile(document.profile, document.provenance))
        return
    shown = profile_json(document)
    Output(as_json=as_json).result(shown, lambda: profile_lines(shown))


def list_profiles(as_json: JsonOption = False) -> None:
    """List the profiles of the catalog."""
    from prfaas.profile.catalog import catalog_names, find_profile
    from prfaas_cli.output import Output, table

    found = [_head(find_profile(name)) for name in catalog_names()]
    rows = [["name", "model", "hardware", "decode", "origin", "source"]]
    for one in found:
        decodes = "yes" if one["decodes"] else "no"
        texts = (one[key] for key in ("origin", "source"))
        rows.append([one["name"], one["model"], one["hardware"], decodes, *texts])
    Output(as_json=as_json).result(found, lambda: table(rows))


def profile_json(document: "ProfileDocument") -> dict[str, Any]:
    """Return what `show` shows, as plain JSON values; throughput in 10^9 bits per second."""
    from dataclasses import asdict

    profile, how = document.profile, document.provenance
    return {
        **_head(profile),
        "measured_at": how.measured_at,
        "machine": asdict(how.machine),
        "versions": dict(how.versions),
        "complete": how.complete,
        "caveat": _caveat(document),
        "lengths": [_length(profile, tokens) for tokens in _LENGTHS],
        "decode": _decode(profile),
    }


def _caveat(document: "ProfileDocument") -> str | None:
    """Return what is known of AIConfigurator's estimates; nothing is known of another's."""
    from prfaas.profile import Origin
    from prfaas_cli.aiconfigurator import PACKAGE

    profile = document.profile
    is_theirs = profile.origin is Origin.ESTIMATED and profile.source.startswith(PACKAGE)
    return _OPTIMISTIC if is_theirs else None


def profile_lines(shown: dict[str, Any]) -> Iterator[str]:
    """Return the lines of `show` for people."""
    gpus = "1 GPU" if shown["gpus"] == 1 else f"{shown['gpus']} GPUs"
    yield f"{shown['name']}: {shown['model']} on {shown['hardware']} ({gpus})"
    yield f"origin: {shown['origin']}; {shown['source']}"
    if shown["caveat"]:
        yield shown["caveat"]
    if shown["measured_at"]:
        versions = ", ".join(f"{name} {version}" for name, version in shown["versions"].items())
        yield f"measured: {shown['measured_at']}, {versions or 'versions unknown'}"
    if not shown["complete"]:
        yield "incomplete: the measurement was cut short"
    yield from _length_lines(shown["lengths"])
    yield from _decode_lines(shown["decode"])
    rows = shown["lengths"] + (shown["decode"]["steps"] if shown["decode"] else [])
    if any(row["extrapolated"] for row in rows):
        yield "* extrapolated: outside the profile's points, as its outermost piece goes on"


def _head(profile: "InstanceProfile") -> dict[str, Any]:
    return {
        "name": profile.name,
        "model": profile.model,
        "hardware": profile.hardware,
        "gpus": profile.gpus,
        "origin": str(profile.origin),
        "source": profile.source,
        "decodes": profile.decode is not None,
    }


def _length(profile: "InstanceProfile", tokens: int) -> dict[str, Any]:
    curves = {"kv_bytes": profile.kv_bytes, "prefill_s": profile.prefill_s}
    return {
        "tokens": tokens,
        **{name: curve.at(tokens) for name, curve in curves.items()},
        "phi_gbps": profile.kv_throughput(tokens) * 8 / 1e9,
        "extrapolated": [name for name, curve in curves.items() if _outside(curve, tokens)],
    }


def _decode(profile: "InstanceProfile") -> dict[str, Any] | None:
    decode = profile.decode
    if decode is None:
        return None
    batches = [1 << power for power in range(decode.max_batch.bit_length())]
    steps = [
        {
            "batch": batch,
            "step_s": decode.step_s.at(batch),
            "tokens_per_s": decode.tokens_per_s(batch),
            "extrapolated": ["step_s"] if _outside(decode.step_s, batch) else [],
        }
        for batch in sorted({*batches, decode.max_batch})
    ]
    return {"max_batch": decode.max_batch, "steps": steps}


def _outside(curve: "Curve", x: float) -> bool:
    """Say whether x is outside a table; a formula and a constant are the same everywhere."""
    from prfaas.profile import TableCurve

    if not isinstance(curve, TableCurve) or len(curve.points) == 1:
        return False
    return not curve.points[0][0] <= x <= curve.points[-1][0]


def _length_lines(rows: list[dict[str, Any]]) -> list[str]:
    from prfaas_cli.output import table

    cells = [["tokens", "S_kv", "T_prefill", "Phi_kv"]]
    for row in rows:
        bytes_mark, seconds_mark = (
            "*" if name in row["extrapolated"] else "" for name in ("kv_bytes", "prefill_s")
        )
        cells.append(
            [
                f"{row['tokens'] // _K}K",
                f"{row['kv_bytes'] / 2**20:.1f} MiB{bytes_mark}",
                f"{_seconds(row['prefill_s'])}{seconds_mark}",
                f"{row['phi_gbps']:.3g} Gbps{bytes_mark or seconds_mark}",
            ]
        )
    return table(cells)


def _decode_lines(decode: dict[str, Any] | None) -> list[str]:
    from prfaas_cli.output import table

    if decode is None:
        return ["decode: none; this instance only prefills"]
    cells = [["batch", "step", "tokens/s"]]
    for row in decode["steps"]:
        mark = "*" if row["extrapolated"] else ""
        step = f"{row['step_s'] * 1000:.1f} ms{mark}"
        cells.append([str(row["batch"]), step, f"{row['tokens_per_s']:.0f}{mark}"])
    return [f"decode: a batch of {decode['max_batch']} at most", *table(cells)]


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"
