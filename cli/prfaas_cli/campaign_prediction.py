"""What planner and simulator say of a campaign, to stand beside what was measured.

The simulator gets the very requests of the campaign, at the same times, and what it says is summed
up as the measurement is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prfaas.errors import ConfigError
from prfaas.sim.record import Columns
from prfaas.throughput import Expectation
from prfaas_cli.campaign_target import Facts
from prfaas_cli.cases import PAPER, load_case
from prfaas_loadtest.campaigns import Campaign, Outcome, Sample, Summary, summarise
from prfaas_loadtest.campaigns.run import RunFolder

if TYPE_CHECKING:
    from prfaas.planning import Case, Plan
    from prfaas_loadtest.campaigns.campaign import Planned

_BASELINES = ("homogeneous", "naive")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Rates per second, times in seconds.

    `lambda_max`, `bare_*`, `egress_bits_per_s` and `offload_fraction` are the plan's: a stage full,
    and prefill and transfer of an empty deployment. `simulated` is the same requests in virtual
    time, with queues.
    """

    case: str
    policy: str
    lambda_max: float
    bare_ttft_mean_s: float
    bare_ttft_p90_s: float
    egress_bits_per_s: float
    offload_fraction: float
    simulated: Summary
    simulated_egress_bits_per_s: float


def predict(
    campaign: Campaign, folder: RunFolder, facts: Facts, *, beside: Path | None
) -> Prediction | None:
    """Return what is predicted of a campaign with a `[plan]`; None without.

    Raises:
        ConfigError: the case is none, or the schedule does not fit it.
    """
    planned = campaign.plan
    if planned is None:
        return None
    case = _case(planned, facts, beside)
    found = _plan(case, planned.policy)
    columns = _simulated(case, planned.policy, folder, batch_tokens=facts.batch_tokens)
    simulated = summarise(
        list(_samples(columns)),
        slo=campaign.slo,
        warmup_share=campaign.warmup_share,
        dilation=1.0,
    )
    return Prediction(
        case=planned.case,
        policy=planned.policy,
        lambda_max=found.lambda_max,
        bare_ttft_mean_s=found.ttft.arrival_mean_s,
        bare_ttft_p90_s=found.ttft.arrival_p90_s,
        egress_bits_per_s=found.stages.egress_bytes_per_s * 8,
        offload_fraction=found.stages.offload_fraction,
        simulated=simulated,
        simulated_egress_bits_per_s=_egress(columns, *simulated.window_s),
    )


def check_plan(campaign: Campaign, facts: Facts, *, beside: Path) -> None:
    """Find out before anything is sent whether the campaign's `[plan]` can be answered.

    Raises:
        ConfigError: the case is none, or has no such plan.
    """
    if campaign.plan is not None:
        _plan(_case(campaign.plan, facts, beside), campaign.plan.policy)


def _case(planned: "Planned", facts: Facts, beside: Path | None) -> "Case":
    """Return the case with the roles and the threshold of the deployment that was measured."""
    from prfaas_cli.plan_study import with_fixed

    name = planned.case
    if name != PAPER and beside is not None and not Path(name).is_absolute():
        name = str(beside / name)
    fixed = {"threshold_tokens": planned.threshold, "n_p": planned.n_p, "n_d": planned.n_d}
    if planned.policy not in _BASELINES and len(facts.instances) == 3:
        measured = (facts.threshold_tokens, *facts.instances[1:])
        told = zip(fixed.items(), measured, strict=True)
        fixed = {key: here if value is None else value for (key, value), here in told}
    return with_fixed(load_case(name), **fixed)


def _plan(case: "Case", policy: str) -> "Plan":
    from prfaas.planning import baselines, plan

    site, demand, constraints = case.site, case.demand, case.constraints
    if policy not in _BASELINES:
        return plan(site, demand, constraints, expectation=Expectation.EXACT)
    found = baselines(site, demand, constraints, expectation=Expectation.EXACT)
    chosen = found.naive if policy == "naive" else found.homogeneous
    if chosen is None:
        raise ConfigError("plan.policy = 'naive': allowed: only with a PrfaaS cluster in the case")
    return chosen


def _simulated(case: "Case", policy: str, folder: RunFolder, *, batch_tokens: int) -> Columns:
    """Simulate the campaign's own requests, as prompts that share nothing; short ones are prefilled
    together as the engines that were measured do."""
    from prfaas.sim.generate import replay
    from prfaas.sim.policies.contender import DeploymentSettings, make_contender
    from prfaas.sim.world import World
    from prfaas_cli.trace_file import read_trace

    contender = make_contender(policy, case, DeploymentSettings(batch_tokens=batch_tokens))
    workload = replay(read_trace(folder.trace), chains=False)
    return World(contender.deployment, workload, contender.make_policy()).run()


def _samples(columns: Columns) -> Iterator[Sample]:
    """Give the simulated requests in the form of measured ones."""
    rows = zip(
        columns.arrival_s.tolist(),
        columns.first_token_s.tolist(),
        columns.finish_s.tolist(),
        columns.answered.tolist(),
        columns.prompt_tokens.tolist(),
        columns.output_tokens.tolist(),
        columns.region.tolist(),
        strict=True,
    )
    for index, (due_s, first_s, last_s, answered, prompt, output, region) in enumerate(rows):
        yield Sample(
            index=index,
            tenant="simulated",
            outcome=Outcome.ANSWERED if answered else Outcome.REFUSED,
            due_s=due_s,
            sent_s=due_s,
            first_s=first_s if answered else -1.0,
            last_s=last_s if answered else due_s,
            prompt_tokens=prompt,
            wanted=output,
            tokens=output if answered else 0,
            route="offload" if region > 0 else "local",
        )


def _egress(columns: Columns, begin_s: float, end_s: float) -> float:
    """Return the bits per second of caches that were over the link within the window."""
    there = (columns.kv_arrival_s >= begin_s) & (columns.kv_arrival_s <= end_s)
    crossed = float(columns.kv_bytes[there & (columns.region > 0)].sum())
    return crossed * 8 / max(end_s - begin_s, 1e-9)
