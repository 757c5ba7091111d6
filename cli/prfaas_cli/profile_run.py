"""`prfaasctl profile run`: measure a live SGLang server into a profile file."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prfaas.errors import PrfaasError
from prfaas_cli.place import JsonOption

if TYPE_CHECKING:
    from prfaas.profile.document import ProfileDocument
    from prfaas_cli.engine_client import EngineFacts
    from prfaas_cli.engine_sweep import Measured
    from prfaas_cli.output import Output
    from prfaas_cli.profile_plan import RunOptions, Target


def run(
    url: Annotated[str, typer.Option(help="A plain SGLang server, as in http://127.0.0.1:30000.")],
    lengths: Annotated[
        str | None,
        typer.Option(help="Prompt lengths, as in 512,1k,8k; by default 128 to 128k, as they fit."),
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(help="Decode batches, as in 1,2,4; by default 1 to 32, as they fit."),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Runs of each; the median counts.")] = 3,
    output_tokens: Annotated[int, typer.Option(help="Tokens per stream of a decode run.")] = 32,
    context: Annotated[
        str | None, typer.Option(help="Prompt length of a decode run; by default 1k, as it fits.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="The model's config.json, if the server's is not here.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(help="What the server runs on, as in '8x H200'.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The profile file; by default MODEL.profile.json here.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one request may take.")] = 600.0,
    as_json: JsonOption = False,
) -> None:
    """Measure prefill over prompt lengths and decode over batches of an otherwise idle server."""
    from prfaas_cli.output import Output
    from prfaas_cli.profile_plan import RunOptions

    options = RunOptions(
        url=url,
        lengths=lengths,
        batches=batches,
        repeat=repeat,
        output_tokens=output_tokens,
        context=context,
        timeout_s=timeout,
        config=config,
        hardware=hardware,
        output=output,
    )
    options.check()
    _run(options, Output(as_json=as_json))


def _run(options: "RunOptions", output: "Output") -> None:
    """Measure and save; what was measured before a failure or Ctrl-C is saved as well."""
    from prfaas_cli.engine_sweep import Measured
    from prfaas_cli.profile_plan import plan_run
    from prfaas_cli.profile_show import profile_json, profile_lines

    facts = asyncio.run(_facts(options))
    target, measured = plan_run(options, facts), Measured()
    output.step(f"SGLang {facts.version or '?'} serves {facts.model}; S_kv from {target.config}")
    try:
        asyncio.run(_sweep(options, target, measured, output))
    except (KeyboardInterrupt, PrfaasError):
        _save_part(target, measured, output)
        raise
    document = _save(target, measured, complete=True)
    shown = profile_json(document) | {"file": str(target.file)}
    output.result(shown, lambda: [*profile_lines(shown), f"saved: {target.file}"])


async def _facts(options: "RunOptions") -> "EngineFacts":
    from prfaas_cli.engine_client import EngineClient

    async with EngineClient(options.url, timeout_s=options.timeout_s) as client:
        return await client.facts()


async def _sweep(
    options: "RunOptions", target: "Target", measured: "Measured", output: "Output"
) -> None:
    from prfaas_cli.engine_client import EngineClient
    from prfaas_cli.engine_sweep import Sweep

    async with EngineClient(options.url, timeout_s=options.timeout_s) as client:
        await Sweep(client, target.plan, measured, output.step).run()


def _save(target: "Target", measured: "Measured", *, complete: bool) -> "ProfileDocument":
    from prfaas.profile.document import ProfileDocument, render_profile
    from prfaas.profile.fit import fit_profile
    from prfaas.profile.samples import Provenance
    from prfaas_cli.profile_files import write_text

    how = Provenance(
        measured_at=_now(),
        machine=target.machine,
        versions=_versions(target.facts),
        complete=complete,
        samples=measured.samples(),
    )
    source = f"measured by prfaasctl on SGLang {target.facts.version or 'of unknown version'}"
    kv_bytes = target.geometry.kv_bytes
    profile = fit_profile(target.subject, how.samples, kv_bytes, source=source)
    write_text(target.file, render_profile(profile, how))
    return ProfileDocument(profile, how)


def _save_part(target: "Target", measured: "Measured", output: "Output") -> None:
    """Keep what there is of a measurement that ends early, and say so."""
    if not measured.prefill:
        output.note("nothing was measured; no profile is saved")
        return
    _save(target, measured, complete=False)
    lengths = len({sample.tokens for sample in measured.prefill})
    batches = len({sample.batch for sample in measured.decode})
    output.note(
        f"cut short: {lengths} of {len(target.plan.lengths)} lengths and {batches} of"
        f" {len(target.plan.batches)} batches are saved in {target.file}, marked as incomplete"
    )


def _versions(facts: "EngineFacts") -> tuple[tuple[str, str], ...]:
    """Return the server's version, and ours; torch is said where its SGLang is installed here."""
    import platform

    from prfaas_cli.machine_facts import package_version

    same = facts.version and facts.version == package_version("sglang")
    found = {
        "sglang": facts.version,
        "torch": package_version("torch") if same else "",
        "python": platform.python_version(),
        "prfaas": package_version("prfaas"),
    }
    return tuple((name, text) for name, text in found.items() if text)


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
