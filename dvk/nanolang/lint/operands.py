"""Operand counts of the functions that Triton kernels call."""

from __future__ import annotations

from dvk.composer.codegen.triton.scalar import HELPERS, called
from dvk.composer.ir.primitives import PRIMITIVES

_TEXTS = {
    name: row.arity
    for row in PRIMITIVES.values()
    if (name := called(row.name))
    and row.name != "where"  # its lanes differ in meaning: see `_TAKEN`
}
LANEWISE: dict[str, int] = {
    **_TEXTS,
    **{double: n for name, n in _TEXTS.items() if (double := f"{name}_f64") in HELPERS},
    **dict.fromkeys(("abs", "tl.erf", "tl.sigmoid"), 1),
    **dict.fromkeys(("dvk_larger", "dvk_larger_int", "dvk_product"), 2),
    "tl.fma": 3,
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
