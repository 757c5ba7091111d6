"""What `deploy` says before and after: the plan, and how to go on."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prfaas_cli.place import DEFAULT_NAME, DEFAULT_STATE_DIR, Place

if TYPE_CHECKING:
    from prfaas_cli.options import DeployOptions


def plan_lines(place: Place, options: "DeployOptions") -> Iterator[str]:
    """Yield what is going to be deployed."""
    from prfaas_cli.deploy_topology import link_lines

    for region in options.regions[:-1]:
        yield f"region {region}: prefill of prompts over {options.threshold_tokens} tokens"
    yield f"region {options.home}: gateway, etcd, prefill of shorter prompts, decode"
    yield from link_lines(place.name, options)
    yield from _engine_lines(options)
    yield f"security between regions: {options.security}"
    yield f"API: {'; '.join(_api_words(options))}"


def result_lines(
    place: Place,
    options: "DeployOptions",
    outcome: str,
    *,
    times: Mapping[str, float],
    elapsed_s: float,
) -> Iterator[str]:
    """Yield what became of a deploy, and what to do next; `times` are those of its steps."""
    from prfaas_cli.process_plan import api_url

    url = api_url(options)
    if outcome == "nothing to do":
        yield f"nothing to do: all runs; API: {url}/v1"
        return
    yield f"{outcome} in {elapsed_s:.1f} s"
    if times:
        yield f"the longest waits: {_longest(times)}"
    flags = place_flags(place)
    yield f"API:      {url}/v1"
    if options.tls:
        yield f"its CA:   {place.certificates / 'ca.crt'}"
    command = "prfaasctl --api-key-file KEY" if options.api_keys else "prfaasctl"
    tokens = max(900, options.threshold_tokens * 3 // 2)
    yield f"try it:   {command} chat 'Why is the sky blue?' --repeat-to {tokens}{flags}"
    yield f"look:     {command} status{flags}; prfaasctl link show{flags}"
    yield f"remove:   prfaasctl destroy{flags}"


def place_flags(place: Place) -> str:
    """Return the options by which other commands find a deployment."""
    flags = "" if place.name == DEFAULT_NAME else f" --name {place.name}"
    if place.root != DEFAULT_STATE_DIR:
        flags += f" --state-dir {place.root}"
    return flags


def _api_words(options: "DeployOptions") -> Iterator[str]:
    yield f"keys of {options.api_keys}" if options.api_keys else "no keys, everybody may ask"
    if options.tls or options.tls_cert:
        yield f"TLS by {options.tls_cert or 'a certificate of the deployment'}"
    if options.cors_origins:
        yield f"pages of {', '.join(options.cors_origins)}"
    yield from options.settings


def _engine_lines(options: "DeployOptions") -> Iterator[str]:
    if not options.is_twin:
        yield f"model: {options.model_path} ({options.dtype}, CPU)"
        return
    counts = ", ".join(map(str, options.instances))
    yield f"twins of {', '.join(options.profiles)}: {counts}; tokenizer of {options.model_path}"
    yield f"bytes and link rate divided by {options.scale:g}, times {options.dilation:g} as long"


def _longest(times: Mapping[str, float]) -> str:
    """Return the three steps that came longest after the one before."""
    ordered = sorted(times.items(), key=lambda item: item[1])
    gaps = [
        (done_s - before_s, text)
        for (text, done_s), (_, before_s) in zip(ordered, [("", 0.0), *ordered], strict=False)
    ]
    return ", ".join(f"{text} {gap_s:.1f} s" for gap_s, text in sorted(gaps, reverse=True)[:3])
