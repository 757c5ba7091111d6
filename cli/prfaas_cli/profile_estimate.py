"""`prfaasctl profile estimate`: a profile without hardware, from NVIDIA's kernel times."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prfaas.errors import ConfigError
from prfaas_cli.place import JsonOption

if TYPE_CHECKING:
    from prfaas.profile import InstanceProfile
    from prfaas.profile.geometry import KvGeometry
    from prfaas.profile.samples import Samples
    from prfaas_cli.aiconfigurator import Estimator, Instance

_LENGTHS = tuple(1 << power for power in range(7, 18))
_BATCHES = tuple(1 << power for power in range(10))
_MOST_RANKS = 1024


def estimate(
    model: Annotated[str, typer.Option(help="As in Qwen/Qwen3.5-397B-A17B, or a directory.")],
    system: Annotated[str, typer.Option(help="The GPUs, as in h200_sxm.")],
    tp: Annotated[int, typer.Option(help="GPUs of the instance (tensor parallelism).")],
    ep: Annotated[int, typer.Option(help="Ranks that experts are split over.")] = 1,
    context: Annotated[str, typer.Option(help="Prompt length of decode steps.")] = "8k",
    output: Annotated[Path | None, typer.Option(help="The profile file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate a profile without hardware. Estimates are optimistic: measure where you can."""
    from prfaas.profile.document import ProfileDocument, render_profile
    from prfaas.profile.samples import Machine, Provenance
    from prfaas_cli.aiconfigurator import PACKAGE, Estimator, Instance
    from prfaas_cli.machine_facts import package_version
    from prfaas_cli.output import Output
    from prfaas_cli.profile_files import check_writable, write_text
    from prfaas_cli.profile_show import profile_json, profile_lines

    instance, context_tokens = Instance(model, system, tp, ep), _checked(tp, ep, context)
    if output is not None:
        check_writable(output)
    estimator = Estimator(instance)
    profile = _profile(instance, estimator, context_tokens)
    versions = {PACKAGE: package_version(PACKAGE), "sglang": estimator.sglang_version}
    how = Provenance(
        machine=Machine(gpu=profile.hardware),
        versions=tuple((name, text) for name, text in versions.items() if text),
    )
    if output is not None:
        write_text(output, render_profile(profile, how))
    shown = profile_json(ProfileDocument(profile, how)) | {"file": output and str(output)}
    saved = [f"saved: {output}"] if output is not None else []
    Output(as_json=as_json).result(shown, lambda: [*profile_lines(shown), *saved])


def _profile(
    instance: "Instance", estimator: "Estimator", context_tokens: int
) -> "InstanceProfile":
    from prfaas.profile import Origin
    from prfaas.profile.fit import Subject, fit_profile
    from prfaas_cli.aiconfigurator import PACKAGE
    from prfaas_cli.profile_kv import read_geometry

    geometry = read_geometry(estimator.config, {"kv": None, "ssm": None, "conv": None})
    name = instance.model.rstrip("/").rpartition("/")[2]
    source = f"{PACKAGE}, kernel times of SGLang {estimator.sglang_version}"
    return fit_profile(
        Subject(
            f"{name}-{instance.system}", name, f"{instance.tp}x {instance.system}", instance.tp
        ),
        _samples(estimator, context_tokens, _most(instance, estimator, geometry, context_tokens)),
        geometry.kv_bytes,
        origin=Origin.ESTIMATED,
        source=source,
    )


def _samples(estimator: "Estimator", context_tokens: int, most: int) -> "Samples":
    from prfaas.profile.samples import DecodeSample, PrefillSample, Samples

    batches = sorted({batch for batch in _BATCHES if batch < most} | {most})
    return Samples(
        tuple(PrefillSample(tokens, estimator.prefill_s(tokens)) for tokens in _LENGTHS),
        tuple(
            DecodeSample(batch, estimator.step_s(batch, context_tokens), context_tokens)
            for batch in batches
        ),
    )


def _most(
    instance: "Instance", estimator: "Estimator", geometry: "KvGeometry", context_tokens: int
) -> int:
    """Return the largest batch: what memory holds, and no more than is worth a table."""
    cache_bytes = estimator.cache_bytes()
    held = cache_bytes // geometry.physical_bytes(context_tokens, tp=instance.tp)
    if held < 1:
        raise ConfigError(
            f"--tp {instance.tp}: the memory of {instance.tp}x {instance.system} does not hold"
            f" {instance.model} with one request of {context_tokens} tokens"
        )
    return min(held, _BATCHES[-1])


def _checked(tp: int, ep: int, context: str) -> int:
    """Check the options; return the context in tokens."""
    from prfaas_cli.profile_kv import parse_lengths

    if not 1 <= tp <= _MOST_RANKS:
        raise ConfigError(f"--tp {tp}: allowed is 1 to {_MOST_RANKS}")
    if ep < 1 or tp % ep:
        raise ConfigError(f"--ep {ep}: must divide --tp {tp}")
    try:
        return max(parse_lengths(context))
    except ConfigError as error:
        raise ConfigError(str(error).replace("--lengths", "--context", 1)) from None
