"""A profile as a file: JSON text of a fixed, versioned form."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from prfaas.errors import ConfigError
from prfaas.profile.curve import Curve, TableCurve, curve_from_json
from prfaas.profile.document_fields import Reader, finite
from prfaas.profile.instance import DecodeProfile, InstanceProfile, Origin
from prfaas.profile.samples import DecodeSample, Machine, PrefillSample, Provenance, Samples

FORMAT = "prfaas-profile"
VERSION = 1

_Sample = TypeVar("_Sample")

_FIELDS = frozenset(
    {"format", "version", "name", "model", "hardware", "gpus", "prefill_s", "kv_bytes", "decode"}
    | {"origin", "source", "measured_at", "machine", "versions", "complete", "samples"}
)
#: The lists and objects that hold no others: each goes on one line.
_INNERMOST = re.compile(r'[\[{](?:"(?:[^"\\]|\\.)*"|[^\[\]{}"])*[\]}]')
_OUTER_BREAKS = re.compile(r"(?<=[\[{])\n *|\n *(?=[\]}])")
_LINE_BREAK = re.compile(r"\n *")
#: Where a curve is tried: lengths (and batches) up to a million.
_TRIED = tuple(2.0**power for power in range(21))
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ProfileDocument:
    """What a profile file holds: the profile, and how it came to be."""

    profile: InstanceProfile
    provenance: Provenance = field(default_factory=Provenance)


def render_profile(profile: InstanceProfile, provenance: Provenance | None = None) -> str:
    """Return the text of a profile file; `parse_document` gives the same back."""
    how = provenance or Provenance()
    decode = profile.decode
    document = {
        "format": FORMAT,
        "version": VERSION,
        "name": profile.name,
        "model": profile.model,
        "hardware": profile.hardware,
        "gpus": profile.gpus,
        "origin": str(profile.origin),
        "source": profile.source,
        "prefill_s": profile.prefill_s.to_json(),
        "kv_bytes": profile.kv_bytes.to_json(),
        "decode": decode and {"step_s": decode.step_s.to_json(), "max_batch": decode.max_batch},
        "measured_at": how.measured_at,
        "machine": asdict(how.machine),
        "versions": dict(how.versions),
        "complete": how.complete,
        "samples": {
            "prefill": [asdict(sample) for sample in how.samples.prefill],
            "decode": [asdict(sample) for sample in how.samples.decode],
        },
    }
    text = json.dumps(document, indent=2, allow_nan=False)
    return _INNERMOST.sub(lambda match: _on_one_line(match[0]), text) + "\n"


def _on_one_line(indented: str) -> str:
    """A line break in JSON is never inside a string."""
    return _LINE_BREAK.sub(" ", _OUTER_BREAKS.sub("", indented))


def parse_profile(text: str | bytes, where: str) -> InstanceProfile:
    """Read the profile of a profile file, named `where` in errors.

    Raises:
        ConfigError: one line, naming file and field.
    """
    return parse_document(text, where).profile


def parse_document(text: str | bytes, where: str) -> ProfileDocument:
    """Read a profile file, named `where` in errors.

    Raises:
        ConfigError: one line, naming file and field.
    """
    reader = Reader(_checked(_json(text, where), where), where, allowed=_FIELDS)
    try:
        origin = Origin(reader.text("origin"))
    except ValueError:
        reader.refuse("origin", reader.value("origin"), f"allowed: {', '.join(Origin)}")
    profile = InstanceProfile(
        name=reader.text("name"),
        model=reader.text("model"),
        hardware=reader.text("hardware"),
        gpus=reader.whole("gpus", least=1),
        prefill_s=_curve(reader, "prefill_s"),
        kv_bytes=_curve(reader, "kv_bytes"),
        decode=_decode(reader),
        origin=origin,
        source=reader.text("source"),
    )
    return ProfileDocument(profile, _provenance(reader))


def _json(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        said = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise ConfigError(f"{where}: not JSON: {said}") from None


def _checked(raw: Any, where: str) -> Any:
    """Refuse what is no profile, or one of a later version, before looking at its fields."""
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        is_shown = isinstance(raw, dict) and "lengths" in raw and "decodes" in raw
        hint = (
            "this is of `profile show --json`; `profile show --file` prints a profile file"
            if is_shown
            else "is this a profile file?"
        )
        raise ConfigError(f'{where}: format: must be "{FORMAT}"; {hint}')
    if raw.get("version") != VERSION or isinstance(raw["version"], bool):
        said = f"{raw.get('version')!r:.40}"
        raise ConfigError(f"{where}: version: {said}: this prfaasctl reads version {VERSION}")
    return raw


def _curve(reader: Reader, key: str, *, most: float = _TRIED[-1]) -> Curve:
    """Read a curve that is positive, finite and never falls, from 1 to `most` and at its points."""
    try:
        curve = curve_from_json(reader.value(key))
        values = [curve.at(x) for x in _tried(curve, most)]
    except ConfigError as error:
        raise ConfigError(f"{reader.at(key)}: {error}") from None
    except OverflowError:
        raise ConfigError(f"{reader.at(key)}: a number is too large, or grows so") from None
    if not all(map(finite, values)):
        raise ConfigError(f"{reader.at(key)}: must be above 0 and finite from 1 to {most:.0f}")
    if any(left > right * (1 + _ROUNDING) for left, right in pairwise(values)):
        raise ConfigError(f"{reader.at(key)}: must not fall where tokens (or the batch) grow")
    return curve


def _tried(curve: Curve, most: float) -> list[float]:
    points = curve.points if isinstance(curve, TableCurve) else ()
    return sorted({x for x in _TRIED if x < most} | {most} | {x for x, _ in points})


def _decode(reader: Reader) -> DecodeProfile | None:
    raw = reader.value("decode")
    if raw is None:
        return None
    inner = Reader(raw, reader.at("decode"), allowed=frozenset({"step_s", "max_batch"}))
    max_batch = inner.whole("max_batch", least=1)
    return DecodeProfile(_curve(inner, "step_s", most=max_batch), max_batch)


def _provenance(reader: Reader) -> Provenance:
    complete = reader.optional("complete")
    if not isinstance(complete, bool | None):
        reader.refuse("complete", complete, "must be true or false")
    return Provenance(
        measured_at=reader.text("measured_at", ""),
        machine=_machine(reader),
        versions=_versions(reader),
        complete=complete is not False,
        samples=_samples(reader),
    )


def _part(reader: Reader, key: str, names: Iterable[str]) -> Reader:
    """Return the fields of an object that need not be there."""
    raw = reader.optional(key)
    return Reader({} if raw is None else raw, reader.at(key), allowed=frozenset(names))


def _machine(reader: Reader) -> Machine:
    inner = _part(reader, "machine", ("cpu", "gpu", "memory_bytes"))
    memory_bytes = inner.whole("memory_bytes", least=0, default=0)
    return Machine(inner.text("cpu", ""), inner.text("gpu", ""), memory_bytes)


def _versions(reader: Reader) -> tuple[tuple[str, str], ...]:
    raw = reader.optional("versions")
    inner = _part(reader, "versions", raw if isinstance(raw, dict) else ())
    return tuple((name, inner.text(name)) for name in raw or ())


def _samples(reader: Reader) -> Samples:
    inner = _part(reader, "samples", ("prefill", "decode"))
    return Samples(
        prefill=_list(inner, "prefill", ("tokens", "ttft_s"), _prefill_sample),
        decode=_list(inner, "decode", ("batch", "step_s", "context_tokens"), _decode_sample),
    )


def _list(
    reader: Reader, key: str, names: tuple[str, ...], read: Callable[[Reader], _Sample]
) -> tuple[_Sample, ...]:
    allowed = frozenset(names)
    return tuple(
        read(Reader(item, reader.at(f"{key}[{index}]"), allowed=allowed))
        for index, item in enumerate(reader.items(key))
    )


def _prefill_sample(reader: Reader) -> PrefillSample:
    return PrefillSample(reader.whole("tokens", least=1), reader.seconds("ttft_s"))


def _decode_sample(reader: Reader) -> DecodeSample:
    return DecodeSample(
        batch=reader.whole("batch", least=1),
        step_s=reader.seconds("step_s"),
        context_tokens=reader.whole("context_tokens", least=1),
    )
