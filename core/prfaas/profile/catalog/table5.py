"""The paper's internal 1T model: Table 5 on H200, and the H20 curve derived from Table 6."""

from dataclasses import dataclass

from prfaas.profile.curve import PolynomialCurve, constant, table
from prfaas.profile.instance import DecodeProfile, InstanceProfile, Origin

_MODEL = "1T, KDA:MLA 3:1"
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Table5Row:
    """One row as printed; `phi_gbps` is in 10^9 bits per second."""

    tokens: int
    kv_mib: float
    prefill_s: float
    phi_gbps: float


#: Source: PrfaaS Table 5, one 8xH200 instance; K = 1024 tokens, MiB = 2^20 bytes.
TABLE_5 = (
    Table5Row(1 * 1024, 190.8, 0.44, 3.61),
    Table5Row(8 * 1024, 308.9, 0.72, 3.59),
    Table5Row(32 * 1024, 701.3, 1.84, 3.19),
    Table5Row(128 * 1024, 2316.3, 7.40, 2.62),
)

#: Fitted to three figures of Table 6; it predicts two more that it was not fitted to.
_H20_PREFILL_S = PolynomialCurve((0.4679, 1.302e-4, 2.926e-10))

_KV_BYTES = table([(row.tokens, row.kv_mib * _MIB) for row in TABLE_5])


def paper_1t_h200() -> InstanceProfile:
    """Return the instance of the paper's PrfaaS cluster. It only prefills.

    Source: PrfaaS Table 5.
    """
    return InstanceProfile(
        name="paper-1t-h200",
        model=_MODEL,
        hardware="8x H200",
        gpus=8,
        prefill_s=table([(row.tokens, row.prefill_s) for row in TABLE_5]),
        kv_bytes=_KV_BYTES,
        decode=None,
        origin=Origin.PUBLISHED,
        source="PrfaaS (arXiv 2604.15039) Table 5",
    )


def paper_1t_h20() -> InstanceProfile:
    """Return the instance of the paper's local cluster, which the paper gives no profile of.

    Decode is 800 tokens/s at an SLO of 40 tokens/s per request: a step of 25 ms, a batch of 20.
    The step is known at that batch only, so it is taken as constant.

    Source: PrfaaS Table 6 (Theta and P90 of the two baselines); S_kv of Table 5.
    """
    return InstanceProfile(
        name="paper-1t-h20",
        model=_MODEL,
        hardware="8x H20",
        gpus=8,
        prefill_s=_H20_PREFILL_S,
        kv_bytes=_KV_BYTES,
        decode=DecodeProfile(step_s=constant(0.025), max_batch=20),
        origin=Origin.DERIVED,
        source="fitted to PrfaaS (arXiv 2604.15039) Table 6; S_kv from Table 5",
    )
