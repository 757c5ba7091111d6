"""The paper's six public models on 8xH200: Phi_kv as printed, T_prefill derived from it.

The paper prints Phi_kv only. S_kv follows from each model's architecture (bf16 KV, fp32
linear-attention state, one logical copy), and equation 1 turned round gives T_prefill.
"""

from dataclasses import dataclass

from prfaas.profile.curve import Scale, table
from prfaas.profile.instance import InstanceProfile, Origin

#: The prompt lengths of Tables 3 and 5; K = 1024 tokens.
LENGTHS = (1 * 1024, 8 * 1024, 32 * 1024, 128 * 1024)


@dataclass(frozen=True, slots=True)
class Table3Row:
    """One model: Phi_kv as printed, in 10^9 bits per second at LENGTHS, and its KV geometry.

    `fixed_bytes` is what a request holds whatever its length, from the window of sliding-window
    layers (128 tokens) on.
    """

    name: str
    model: str
    phi_gbps: tuple[float, float, float, float]
    kv_bytes_per_token: int
    fixed_bytes: int

    def kv_bytes(self, tokens: int) -> int:
        """Return S_kv.

        >>> TABLE_3["paper-ring-2.5-1t-h200"].kv_bytes(32 * 1024) / 2**20
        640.0
        """
        return self.fixed_bytes + self.kv_bytes_per_token * tokens

    def prefill_s(self, tokens: int, phi_gbps: float) -> float:
        """Return T_prefill = S_kv / Phi_kv in seconds.

        Source: PrfaaS equation 1.
        """
        return 8 * self.kv_bytes(tokens) / (phi_gbps * 1e9)


_ROWS = (
    Table3Row(
        "paper-kimi-linear-h200", "Kimi-Linear-48B-A3B", (1.19, 2.29, 3.87, 4.88), 8_064, 43_417_600
    ),
    Table3Row(
        "paper-mimo-v2-flash-h200", "MiMo-V2-Flash", (0.82, 2.85, 4.66, 4.71), 23_040, 25_559_040
    ),
    Table3Row(
        "paper-qwen3.5-397b-h200",
        "Qwen3.5-397B-A17B",
        (4.13, 6.28, 8.25, 7.47),
        30_720,
        192_061_440,
    ),
    Table3Row(
        "paper-ring-2.5-1t-h200", "Ring-2.5-1T", (7.27, 4.47, 2.59, 1.46), 11_520, 293_601_280
    ),
    Table3Row("paper-minimax-m2.5-h200", "MiniMax-M2.5", (4.94, 32.87, 59.93, 47.82), 253_952, 0),
    Table3Row("paper-qwen3-235b-h200", "Qwen3-235B-A22B", (4.12, 22.42, 33.35, 21.50), 192_512, 0),
)

#: By profile name. Source: PrfaaS Table 3 (Phi_kv), the models' config.json (geometry).
TABLE_3 = {row.name: row for row in _ROWS}


def table_3_profiles() -> tuple[InstanceProfile, ...]:
    """Return an instance of each model. They only prefill: the paper says nothing of decode."""
    return tuple(_profile(row) for row in _ROWS)


def _profile(row: Table3Row) -> InstanceProfile:
    """S_kv is straight in tokens, so a linear table is exact between and outside its points."""
    pairs = list(zip(LENGTHS, row.phi_gbps, strict=True))
    return InstanceProfile(
        name=row.name,
        model=row.model,
        hardware="8x H200",
        gpus=8,
        prefill_s=table([(tokens, row.prefill_s(tokens, phi)) for tokens, phi in pairs]),
        kv_bytes=table([(tokens, row.kv_bytes(tokens)) for tokens in LENGTHS], Scale.LINEAR),
        decode=None,
        origin=Origin.DERIVED,
        source="PrfaaS (arXiv 2604.15039) Table 3; S_kv from the model's config.json",
    )
