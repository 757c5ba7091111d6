"""The paper's case: its site, demand and prices, as a case file of ours."""

from prfaas.planning.case import Case, parse_case

PAPER_CASE = """\
name = "paper"

[[prfaas]]
name = "prfaas"
profile = "paper-1t-h200"
instances = 4                  # 32 H200
link = "100gbit"

[pd]
name = "pd"
profile = "paper-1t-h20"
instances = 8                  # 64 H20

[requests]
output_tokens = 1024
lengths = { mu = 9.90, sigma = 1.00, low = 128, high = 131072 }

[slo]
tpot_s = 0.025                 # 40 tokens/s

[prices]                       # per instance and hour, in units of an H20 instance
"8x H200" = 2.0                # derived: what makes the paper's 15 % at equal cost come out
"8x H20" = 1.0

[baselines]
homogeneous_instances = 12     # 96 H20
"""


def paper_case() -> Case:
    """Return the case of Tables 5 and 6.

    >>> paper_case().site.instances
    12

    Source: PrfaaS §4.1.
    """
    return parse_case(PAPER_CASE, source="paper")
