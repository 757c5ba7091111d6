"""`deploy --target inventory`: ansible on machines that exist, over SSH."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prfaas.errors import ConfigError, StateError
from prfaas_cli.ansible_run import play, playbooks, read_inventory
from prfaas_cli.endings import signals_interrupt
from prfaas_cli.failures import ProblemsError
from prfaas_cli.inventory import (
    InventoryHost,
    api_url,
    hosts_of,
    inventory_problems,
    names_package,
)
from prfaas_cli.output import Output
from prfaas_cli.place import Place
from prfaas_cli.sweep import sweep

_BAD_OPTION = 2
_BUILD_TIMEOUT_S = 300.0
_ENGINES = ("sglang", "twin")
_SECURITY = ("mtls", "off")


@dataclass(frozen=True, slots=True)
class InventoryChoices:
    """What a person asked for; None and empty: as the inventory says."""

    inventory: Path
    regions: tuple[str, ...]
    engine: str
    security: str | None
    model: str
    threshold_tokens: int | None
    profiles: tuple[str, ...]
    scale: float
    dilation: float


@dataclass(frozen=True, slots=True)
class Found:
    """What an inventory holds; `has_package`: it says what hosts install."""

    hosts: tuple[InventoryHost, ...]
    has_package: bool


def deploy_inventory(
    place: Place, choices: InventoryChoices, output: Output, *, plan: bool, timeout_s: float
) -> None:
    """Bring all hosts to what was asked for; with `plan` only show what would change.

    Raises:
        ProblemsError: all that is wrong with options and inventory, exit code 2.
        StateError: a host failed or cannot be reached; what is done stays.
    """
    found = check_choices(choices)
    hosts = found.hosts
    for line in plan_lines(hosts, choices):
        output.note(line)
    with signals_interrupt(), place.locked():
        _require_same(place, choices)
        place.logs.mkdir(exist_ok=True)
        variables = _variables(place, choices, has_package=found.has_package)
        if not plan:
            place.write_deployment(_document(choices, variables))
        played = play(
            "site.yml",
            choices.inventory,
            variables,
            log=place.log("ansible"),
            output=output,
            arguments=("--check", "--diff") if plan else (),
            timeout_s=timeout_s,
        )
        if plan:
            shown = place.log("ansible").read_text()
            if place.read_deployment() is None:
                sweep(place, keep_logs=False, say=output.step)
    outcome = _outcome(played.total_changed, plan=plan)
    document = {
        "outcome": outcome,
        "name": place.name,
        "url": api_url(hosts),
        "changed": played.changed,
        "directory": str(place.directory),
        "seconds": round(output.elapsed_s, 2),
    }
    lines = [f"{outcome}: {played.total_changed} changes, {output.elapsed_s:.1f} s"]
    lines += [f"API: {api_url(hosts)}/v1"] if not plan else _differences(shown)
    output.result(document, lambda: lines)


def destroy_inventory(place: Place, output: Output, *, timeout_s: float = 1800.0) -> None:
    """Remove from all hosts what `deploy_inventory` made; the place must be locked.

    Raises:
        StateError: a host failed or cannot be reached.
    """
    deployment = place.require_deployment()
    inventory = deployed_inventory(deployment)
    place.logs.mkdir(exist_ok=True)
    play(
        "uninstall.yml",
        inventory,
        deployment["variables"],
        log=place.log("ansible"),
        output=output,
        timeout_s=timeout_s,
    )


def deployed_inventory(deployment: Mapping[str, Any]) -> Path:
    """Return the inventory that a deployment was made with. Raises: StateError: it is gone."""
    inventory = Path(deployment["inventory"])
    if not inventory.exists():
        raise StateError(f"the inventory {inventory} is gone; bring it back: it names the hosts")
    return inventory


def is_of_inventory(place: Place) -> bool:
    """Return whether a deployment is one of machines of an inventory."""
    return "inventory" in (place.read_deployment() or {})


def check_choices(choices: InventoryChoices) -> Found:
    """Look at the inventory.

    Raises:
        ProblemsError: all that is wrong, exit code 2.
        ConfigError: there is no inventory.
    """
    if not choices.inventory.exists():
        raise ConfigError(f"--inventory {choices.inventory}: no such file")
    document = read_inventory(choices.inventory)
    hosts = hosts_of(document)
    problems = [*_option_problems(choices), *inventory_problems(hosts, choices.regions)]
    if problems:
        raise ProblemsError(problems, exit_code=_BAD_OPTION)
    return Found(hosts, names_package(document))


def plan_lines(hosts: Sequence[InventoryHost], choices: InventoryChoices) -> Iterator[str]:
    """Yield who will do what."""
    for region in choices.regions:
        own = [host for host in hosts if host.region == region]
        shown = ", ".join(f"{host.name} ({'+'.join(host.groups)})" for host in own)
        yield f"region {region}: {shown}"
    yield f"engine: {choices.engine}"


def _option_problems(choices: InventoryChoices) -> Iterator[str]:
    if len(choices.regions) != len(set(choices.regions)) or len(choices.regions) < 2:
        yield f"--regions {','.join(choices.regions)}: allowed: two or more different names"
    if choices.engine not in _ENGINES:
        yield f"--engine {choices.engine}: allowed: {', '.join(_ENGINES)}"
    if choices.security is not None and choices.security not in _SECURITY:
        yield f"--security {choices.security}: allowed for machines: {', '.join(_SECURITY)}"
    if choices.engine == "twin" and len(choices.profiles) != len(choices.regions):
        yield f"--profiles {','.join(choices.profiles)}: allowed: one for each region"


def _variables(place: Place, choices: InventoryChoices, *, has_package: bool) -> dict[str, Any]:
    """Return what the playbooks are told; no secret is in it, only where the keys are."""
    found: dict[str, Any] = {
        "prfaas_deployment": place.name,
        "prfaas_engine": choices.engine,
        "prfaas_prfaasctl": str(Path(sys.executable).with_name("prfaasctl")),
        "certs_dir": str(place.certificates),
        **({} if has_package else release_of(place)),
    }
    if choices.engine == "twin":
        found["prfaas_device"] = "cpu"
        found["prfaas_profiles"] = dict(zip(choices.regions, choices.profiles, strict=True))
        found["prfaas_twin_scale"] = choices.scale
        found["prfaas_twin_dilation"] = choices.dilation
    if choices.security is not None:
        found["prfaas_security"] = choices.security
    if "/" in choices.model:
        found["prfaas_model_path"] = choices.model
    if choices.threshold_tokens is not None:
        found["prfaas_threshold_tokens"] = choices.threshold_tokens
    return found


def release_of(place: Place) -> dict[str, str]:
    """Return what hosts install: of a source tree a wheel of it, else this version."""
    root = playbooks().parent
    if not (root / "pyproject.toml").exists():
        return {"prfaas_requirement": f"prfaas=={version('prfaas')}"}
    folder = place.directory / "wheel"
    for old in folder.glob("*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    command += ["--quiet", "--disable-pip-version-check", "-w", str(folder), str(root)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise StateError(f"cannot build the package: {done.stderr.strip()[-500:]}")
    return {"prfaas_wheel": str(next(folder.glob("*.whl")))}


def _require_same(place: Place, choices: InventoryChoices) -> None:
    deployment = place.read_deployment()
    if deployment is None:
        return
    if deployment.get("inventory") != str(choices.inventory.resolve()):
        raise StateError(
            f"{place.name} is deployed otherwise; run prfaasctl destroy first, or choose a --name"
        )


def _document(choices: InventoryChoices, variables: dict[str, Any]) -> dict[str, Any]:
    return {
        "options": {},
        "processes": [],
        "inventory": str(choices.inventory.resolve()),
        "variables": variables,
        "created_at_s": time.time(),
    }


def _outcome(changed: int, *, plan: bool) -> str:
    if not changed:
        return "nothing to do"
    return "would change" if plan else "deployed"


def _differences(log: str) -> list[str]:
    """Return the lines of differences that ansible showed."""
    return [line for line in log.splitlines() if line.startswith(("+", "-", "@@"))]
