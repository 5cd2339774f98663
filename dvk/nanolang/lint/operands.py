"""Operand counts of the functions that Triton kernels call."""

from __future__ import annotations

from dvk.composer.codegen.triton.device_functions import FUNCTIONS

_UNARY = (
    "exp",
    "exp2",
    "log",
    "log2",
    "sin",
    "cos",
    "sqrt",
    "rsqrt",
    "floor",
    "ceil",
    "abs",
    "erf",
    "sigmoid",
)
_EXACT = ("erf", "expm1", "tanh", "round")
LANEWISE: dict[str, int] = {
    "abs": 1,
    **dict.fromkeys((f"tl.{name}" for name in _UNARY), 1),
    "tl.fma": 3,
    **dict.fromkeys((f"dvk_{name}{kind}" for name in _EXACT for kind in ("", "_f64")), 1),
    **{name: 2 if name.startswith(("dvk_atan2", "dvk_fmod")) else 1 for name in FUNCTIONS},
    **dict.fromkeys(("dvk_log1p", "dvk_trunc", "dvk_order", "dvk_unorder"), 1),
    **dict.fromkeys(("dvk_larger", "dvk_larger_int", "dvk_product"), 2),
}
"""Pointwise functions over lanes."""
MANY = 9
"""A practically unlimited count: versions of Triton differ."""
_TAKEN: dict[str, tuple[int, int]] = {
    **{name: (count, count) for name, count in LANEWISE.items()},
    **dict.fromkeys(("tl.program_id", "pow2"), (1, 1)),
    **dict.fromkeys(("tl.arange", "tl.zeros", "tl.cdiv", "cdiv"), (2, 2)),
    **dict.fromkeys(("tl.where", "tl.full", "dvk_max", "dvk_max_f64"), (3, 3)),
    **dict.fromkeys(("tl.maximum", "tl.minimum"), (2, 3)),
    **dict.fromkeys(
        ("tl.load", "tl.sum", "tl.max", "tl.min", "tl.cumsum", "tl.cumprod"), (1, MANY)
    ),
    **dict.fromkeys(
        ("tl.store", "tl.atomic_add", "tl.atomic_max", "tl.atomic_min", "tl.dot"), (2, MANY)
    ),
    **dict.fromkeys(("tl.reduce", "tl.associative_scan"), (3, MANY)),
}
"""Minimum and maximum counts, including keyword operands."""


def operand_count_error(name: str, count: int) -> str | None:
    """Describe a wrong operand count of a call, as a verb phrase."""
    least, most = _TAKEN.get(name, (count, count))
    if least <= count <= most:
        return None
    return f"gives `{name}` {count} operand{'s' if count != 1 else ''}, and it takes {least if count < least else most}"


__all__ = ["LANEWISE", "operand_count_error"]
