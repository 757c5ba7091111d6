"""What the machine must have before `deploy` touches it. Looks at everything, makes nothing."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from prfaas_agent.checks import (
    model_problem,
    port_problem,
    sglang_problem,
    socket_path_problem,
)
from prfaas_cli.api_check import api_problems
from prfaas_cli.deploy_gateway import gateway_sections
from prfaas_cli.failures import ProblemsError
from prfaas_cli.options import DeployOptions
from prfaas_cli.place import Place
from prfaas_cli.process_plan import GATEWAY_HOST

ENGINE_MEMORY_BYTES = 2 << 30
TWIN_MEMORY_BYTES = 256 << 20
"""Of one engine with its agent."""
_PREFLIGHT = 3
_PACKAGES = {"etcd": "etcd-server", "ip": "iproute2", "iptables": "iptables"}


@dataclass(frozen=True, slots=True)
class Machine:
    """How the preflight looks at the machine; a test gives another one."""

    platform: str = sys.platform
    user_id: Callable[[], int] = os.geteuid
    find_program: Callable[[str], str | None] = lambda name: find_program(name)
    sglang_problem: Callable[[], str | None] = sglang_problem
    model_problem: Callable[[str], str | None] = lambda path: find_model_problem(path)
    port_problem: Callable[[str, int], str | None] = port_problem
    available_memory_bytes: Callable[[], int] = lambda: available_memory_bytes()


def check_machine(
    place: Place, options: DeployOptions, *, machine: Machine | None = None, fresh: bool = True
) -> list[str]:
    """Look at everything and return warnings; `fresh` is false when our own gateway has the port.

    Raises:
        ProblemsError: all that stands in the way, exit code 3.
    """
    machine = machine or Machine()
    problems = list(_problems(place, options, machine, fresh=fresh))
    if problems:
        raise ProblemsError(problems, exit_code=_PREFLIGHT)
    free_bytes = machine.available_memory_bytes()
    count = sum(options.instances)
    wanted_bytes = count * (TWIN_MEMORY_BYTES if options.is_twin else ENGINE_MEMORY_BYTES)
    if free_bytes < wanted_bytes:
        wanted = -(-wanted_bytes // 2**30)
        shown = f"only {free_bytes / 2**30:.1f} GiB of memory are available"
        return [f"{shown}, {count} engines want {wanted}; they may be slow or be killed"]
    return []


def find_program(name: str) -> str | None:
    """Return the path of a program: on the search path, or beside this Python."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def find_model_problem(model_path: str) -> str | None:
    """Check a model directory; a tiny model must also be what today's recipe makes."""
    from prfaas_cpu.models import TINY_MODELS, default_models_dir
    from prfaas_cpu.models.store import is_complete

    path = Path(model_path)
    if path.parent != default_models_dir():
        return model_problem(model_path)
    if path.name not in TINY_MODELS:
        return f"no model {path.name}; give a directory or one of {', '.join(TINY_MODELS)}"
    if is_complete(path):
        return None
    state = "is damaged or outdated" if path.exists() else "is not made yet"
    return f"tiny model {path.name} {state}; run {sys.executable} -m prfaas_cpu.models make"


def available_memory_bytes() -> int:
    """Return what the kernel thinks new processes can have."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _by_option(problem: str) -> str:
    for key, option in (("keys_file", "api-keys"), ("cert", "tls-cert"), ("key", "tls-key")):
        problem = problem.replace(f"api.{key} ", f"--{option} ")
    return problem


def _problems(place: Place, options: DeployOptions, machine: Machine, *, fresh: bool) -> list[str]:
    if not machine.platform.startswith("linux"):
        return [f"this is {machine.platform}; emulated regions need Linux"]
    found: list[str | None] = []
    if machine.user_id() != 0:
        found.append("network namespaces need root; run as root")
    for program, package in _PACKAGES.items():
        if machine.find_program(program) is None:
            found.append(f"{program} is not installed; install the package {package}")
    if not options.is_twin:
        found.append(machine.sglang_problem())
    found.append(machine.model_problem(options.model_path))
    _, api = gateway_sections(place, replace(options, tls=False))
    found += [_by_option(problem) for problem in api_problems(api)]
    if fresh:
        problem = machine.port_problem(GATEWAY_HOST, options.port)
        found.append(f"--port {options.port}: {problem}" if problem else None)
    longest = place.stats_socket(f"{max(options.regions, key=len)}-prefill-0")
    found.append(socket_path_problem(longest))
    return [problem for problem in found if problem]
