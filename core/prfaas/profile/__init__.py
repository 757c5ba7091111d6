"""What engines can do: KV geometry of models, speed of instances, and the published figures."""

from prfaas.profile.curve import (
    Curve,
    PolynomialCurve,
    Scale,
    TableCurve,
    constant,
    curve_from_json,
    table,
)
from prfaas.profile.instance import DecodeProfile, InstanceProfile, Origin

__all__ = [
    "Curve",
    "DecodeProfile",
    "InstanceProfile",
    "Origin",
    "PolynomialCurve",
    "Scale",
    "TableCurve",
    "constant",
    "curve_from_json",
    "table",
]
