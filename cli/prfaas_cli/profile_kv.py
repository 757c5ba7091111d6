"""`prfaasctl profile kv`: what a model's KV cache weighs, read off its config.json."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prfaas.errors import ConfigError
from prfaas_cli.place import JsonOption

if TYPE_CHECKING:
    from prfaas.profile.geometry import Dtypes, KvGeometry

K_TOKENS = 1024
MAX_TOKENS = 1 << 30
DEFAULT_LENGTHS = "1k,8k,32k,128k"


def kv(
    config: Annotated[Path, typer.Option(help="A Hugging Face config.json, or its directory.")],
    lengths: Annotated[
        str, typer.Option(help="Prompt lengths in tokens, as in 1k,8k,2000; 1k is 1024.")
    ] = DEFAULT_LENGTHS,
    kv_dtype: Annotated[
        str | None, typer.Option(help="Of keys and values, as in bfloat16 or fp8_e4m3.")
    ] = None,
    ssm_dtype: Annotated[
        str | None, typer.Option(help="Of recurrent states; what the config says by default.")
    ] = None,
    conv_dtype: Annotated[str | None, typer.Option(help="Of convolution states.")] = None,
    tp: Annotated[int, typer.Option(help="Ranks whose memory to add up.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show bytes per token, bytes per request and S_kv of a model, from its config.json alone."""
    from prfaas_cli.output import Output

    tokens = parse_lengths(lengths)
    if tp < 1:
        raise ConfigError(f"--tp {tp}: must be 1 or more")
    geometry = read_geometry(config, {"kv": kv_dtype, "ssm": ssm_dtype, "conv": conv_dtype})
    try:
        document = describe(geometry, tokens, tp=tp)
    except ConfigError as error:
        raise ConfigError(f"--tp {tp}: {error}") from None
    Output(as_json=as_json).result(document, lambda: _lines(document))


def read_geometry(path: Path, dtypes: dict[str, str | None]) -> "KvGeometry":
    """Return the geometry of a config file; `dtypes` are what the options say, by kind.

    Raises:
        ConfigError: naming the file or the option.
    """
    from prfaas.profile.geometry import dtypes_of, geometry_of

    path = path / "config.json" if path.is_dir() else path
    config = read_config(path)
    try:
        geometry, own = geometry_of(config), dtypes_of(config)
    except ConfigError as error:
        raise ConfigError(f"--config {path}: {error}") from None
    return replace(geometry, dtypes=_with_options(own, dtypes))


def _with_options(own: "Dtypes", options: dict[str, str | None]) -> "Dtypes":
    """Return the dtypes as changed by the options, one at a time so that an error names it."""
    for kind, name in options.items():
        if name is not None:
            try:
                own = replace(own, **{kind: name})
            except ConfigError as error:
                raise ConfigError(f"--{kind}-dtype {name}: {error}") from None
    return own


def read_config(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        ConfigError: naming the file and what is wrong.
    """
    from prfaas_cli.profile_files import read_bytes

    try:
        raw = json.loads(read_bytes(path))
    except ConfigError as error:
        raise ConfigError(f"--config {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path}: not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"--config {path}: not a JSON object")
    return raw


def parse_lengths(text: str) -> list[int]:
    """Return lengths in tokens; K is 1024.

    >>> parse_lengths("1k, 8K,2000")
    [1024, 8192, 2000]

    Raises:
        ConfigError: naming the length that is none.
    """
    return [_parse_length(word.strip()) for word in text.split(",")]


def _parse_length(word: str) -> int:
    number, unit = (word[:-1], K_TOKENS) if word[-1:] in {"k", "K"} else (word, 1)
    is_short_number = number.isascii() and number.isdigit() and len(number) <= 10
    tokens = int(number) * unit if is_short_number else 0
    if not 1 <= tokens <= MAX_TOKENS:
        raise ConfigError(
            f"--lengths {word[:40]!r}: must be 1 to {MAX_TOKENS} tokens, as in 2000 or 32k"
        )
    return tokens


def describe(geometry: "KvGeometry", lengths: list[int], *, tp: int) -> dict[str, Any]:
    """Return all there is to say as plain JSON values; sizes are bytes.

    Raises:
        ConfigError: SGLang does not split the model over `tp` ranks.
    """
    dtypes = geometry.dtypes
    return {
        "architecture": geometry.architecture,
        "layers": geometry.counts(),
        "dtypes": {"kv": dtypes.kv, "ssm": dtypes.ssm, "conv": dtypes.conv},
        "bytes_per_token": geometry.bytes_per_token(),
        "fixed_bytes": geometry.fixed_bytes(),
        "ssm_bytes": geometry.ssm_bytes(),
        "conv_bytes": geometry.conv_bytes(),
        "window_bytes": geometry.full_window_bytes(),
        "tp": tp,
        "lengths": [
            {
                "tokens": tokens,
                "kv_bytes": geometry.kv_bytes(tokens),
                "physical_bytes": geometry.physical_bytes(tokens, tp=tp),
            }
            for tokens in lengths
        ],
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from prfaas_cli.output import table

    layers = ", ".join(f"{count} {kind}" for kind, count in document["layers"].items())
    dtypes = ", ".join(f"{kind} {name}" for kind, name in document["dtypes"].items())
    yield f"{document['architecture']}: {layers} (dtypes: {dtypes})"
    yield f"per token:    {document['bytes_per_token']:,} B"
    parts = ", ".join(f"{name} {document[f'{name}_bytes']:,}" for name in ("ssm", "conv", "window"))
    yield f"per request:  {document['fixed_bytes']:,} B ({parts})"
    yield ""
    rows = [["TOKENS", "S_KV", "BYTES", f"HELD BY SGLANG AT TP {document['tp']}"]]
    rows += [_row(entry) for entry in document["lengths"]]
    yield from table(rows)


def _row(entry: dict[str, int]) -> list[str]:
    tokens, kv_bytes, physical = entry["tokens"], entry["kv_bytes"], entry["physical_bytes"]
    length = str(tokens) if tokens % K_TOKENS else f"{tokens // K_TOKENS}K"
    return [length, _mib(kv_bytes), f"{kv_bytes:,}", _mib(physical)]


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
