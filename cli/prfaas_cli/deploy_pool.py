"""The prefix pools of a deployment, one per region that prefills."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prfaas.pool_section import PoolSection
from prfaas.records import Role
from prfaas_cli.place import Place

if TYPE_CHECKING:
    from prfaas_cli.options import DeployOptions

_LEAST_BYTES = 1 << 20
_MOST_BYTES = 1 << 44


def pool_problems(options: "DeployOptions") -> Iterator[str]:
    """Yield what is wrong with the options of pools."""
    if not options.pool_bytes:
        return
    if not _LEAST_BYTES <= options.pool_bytes <= _MOST_BYTES:
        yield f"--pool-bytes {options.pool_bytes}: 0, or {_LEAST_BYTES} to {_MOST_BYTES}"
    if options.is_twin:
        yield "--pool-bytes: not with --engine twin"
    if options.role_switch:
        yield "--pool-bytes: not with --role-switch"


def pool_section(
    place: Place, options: "DeployOptions", role: Role, *, region: str
) -> PoolSection | None:
    """Return the section of a node; None for nodes without a pool."""
    if not options.pool_bytes or role is not Role.PREFILL:
        return None
    return PoolSection(socket=str(_socket(place, region)))


def pool_commands(place: Place, options: "DeployOptions") -> dict[str, tuple[str, ...]]:
    """Return the command of each region's pool service by the name of its process."""
    if not options.pool_bytes:
        return {}
    return {
        f"{region}-pool-0": (
            *(sys.executable, "-m", "prfaas_pool"),
            *("--arena", str(place.directory / f"{region}.pool.arena")),
            *("--socket", str(_socket(place, region))),
            *("--bytes", str(options.pool_bytes)),
        )
        for region in options.regions
    }


def _socket(place: Place, region: str) -> Path:
    return place.directory / f"{region}.pool.sock"
