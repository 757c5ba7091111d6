"""The plan in force, as etcd keeps it, and what may be wrong with one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prfaas.names import is_name
from prfaas.records import JsonRecord

MAX_THRESHOLD_TOKENS = 1 << 30
MAX_INSTANCES = 100_000
_MAX_REGIONS = 64
_MAX_WHY_CHARS = 200


@dataclass(frozen=True, slots=True)
class RoleCounts:
    """How many prefill and decode nodes a region is to have."""

    n_p: int
    n_d: int


@dataclass(frozen=True, slots=True)
class PlanRecord(JsonRecord):
    """One version of the plan: the threshold and, by region, the roles; who made it, and why.

    Times are Unix times; `converted_at_s` is when the roles last changed. While a plan is
    `pinned` the scheduler proposes and changes nothing. Lambdas are by the model, 0 if unknown.
    """

    version: int
    threshold_tokens: int
    roles: dict[str, RoleCounts] = field(default_factory=dict)
    by: str = ""
    why: str = ""
    at_s: float = 0.0
    converted_at_s: float = 0.0
    pinned: bool = False
    lambda_before: float = 0.0
    lambda_after: float = 0.0

    def __post_init__(self) -> None:
        roles = {
            region: RoleCounts(**counts) if isinstance(counts, dict) else counts
            for region, counts in self.roles.items()
        }
        object.__setattr__(self, "roles", roles)


def plan_problems(threshold_tokens: object, roles: object, why: object) -> Iterator[str]:
    """Yield what is wrong with values that shall become a plan, one line each.

    >>> list(plan_problems(512, {"b": {"n_p": 1, "n_d": 0}}, ""))
    ['roles.b.n_d = 0: allowed: 1 to 100000']
    """
    if type(threshold_tokens) is not int or not 0 <= threshold_tokens <= MAX_THRESHOLD_TOKENS:
        yield f"threshold_tokens = {threshold_tokens!r:.40}: allowed: 0 to {MAX_THRESHOLD_TOKENS}"
    if not isinstance(why, str) or len(why) > _MAX_WHY_CHARS:
        yield f"why: a text of at most {_MAX_WHY_CHARS} characters"
    if not isinstance(roles, Mapping) or len(roles) > _MAX_REGIONS:
        yield 'roles: expected {"REGION": {"n_p": N, "n_d": N}}'
        return
    for region, counts in roles.items():
        if not isinstance(region, str) or not is_name(region):
            yield f"roles: {region!r:.60}: not the name of a region"
        elif not isinstance(counts, Mapping) or set(counts) != {"n_p", "n_d"}:
            yield f'roles.{region}: expected {{"n_p": N, "n_d": N}}'
        else:
            yield from _count_problems(region, counts)


def _count_problems(region: str, counts: Mapping[str, object]) -> Iterator[str]:
    for key, least in (("n_p", 0), ("n_d", 1)):
        count = counts[key]
        if type(count) is not int or not least <= count <= MAX_INSTANCES:
            yield f"roles.{region}.{key} = {count!r:.40}: allowed: {least} to {MAX_INSTANCES}"
