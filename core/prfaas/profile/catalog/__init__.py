"""The profiles that the paper gives or implies, each with its source."""

from prfaas.errors import ConfigError
from prfaas.profile.catalog.table3 import TABLE_3, Table3Row, table_3_profiles
from prfaas.profile.catalog.table5 import TABLE_5, Table5Row, paper_1t_h20, paper_1t_h200
from prfaas.profile.instance import InstanceProfile

__all__ = [
    "TABLE_3",
    "TABLE_5",
    "Table3Row",
    "Table5Row",
    "catalog_names",
    "find_profile",
]

_PROFILES = {
    profile.name: profile for profile in (paper_1t_h200(), paper_1t_h20(), *table_3_profiles())
}


def catalog_names() -> tuple[str, ...]:
    """Return the names of all profiles of the catalog."""
    return tuple(_PROFILES)


def find_profile(name: str) -> InstanceProfile:
    """Return the catalog's profile of that name.

    >>> find_profile("paper-1t-h200").prefill_s.at(32 * 1024)
    1.84

    Raises:
        ConfigError: the catalog has no such profile.
    """
    profile = _PROFILES.get(name)
    if profile is None:
        raise ConfigError(f"profile {name!r}: not in the catalog; it has {', '.join(_PROFILES)}")
    return profile
