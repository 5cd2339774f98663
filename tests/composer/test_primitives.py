"""Every scalar operation that a rule may use has a text in every back end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dvk.composer
from dvk.composer.codegen.cpp import scalar as cpp_scalar
from dvk.composer.codegen.cuda import scalar as cuda_scalar
from dvk.composer.codegen.triton import scalar as triton_scalar
from dvk.composer.ir.loops import Instr, Ref
from dvk.composer.ir.nodes import COSTLY, WHOLE
from dvk.composer.lowering.integers import _BITS, _BOOLS
from dvk.composer.lowering.pointwise import BINARY, SIMPLE
from dvk.nanolang.lint.operands import LANEWISE

RULES = "".join(
    path.read_text(encoding="utf-8") for path in Path(dvk.composer.__file__).parent.glob("*.py")
)
ASKED = {
    *re.findall(r'pw\(\s*"(\w+)"', RULES),
    *SIMPLE.values(),
    *BINARY.values(),
    *_BITS.values(),
    *_BOOLS.values(),
    *WHOLE,
    *COSTLY,
}
OPERATIONS = sorted(
    ASKED - {"iota", "gather", "bounded", "cast"} | {"cast_float16", "cast_bfloat16"}
)
"""Writers write loads and indices; a cast names its type."""
POSITIONS = {"order", "unorder", "high", "low"}
"""Operations of kernels that find indices, which CUDA has none of."""


def instr(op: str, kind: str) -> Instr:
    return Instr(3, op, (Ref(0), Ref(1), Ref(2)), kind, kind, frozenset(), 0)


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_operation_has_a_text_in_every_back_end(op: str) -> None:
    kind = (
        "int64"
        if op in WHOLE or op in ("high", "low", "unorder")
        else "bool"
        if op in ("and", "or", "not")
        else "float32"
    )
    names = ["a", "b", "c"][
        : 3
        if op == "where"
        else 2
        if op in (*BINARY.values(), *WHOLE, "div", "atan2", "fmod")
        else 1
    ]
    assert "a" in cpp_scalar.scalar_expression(
        instr(op, kind), names, ["a"], ("h2f({})", "f2h({})")
    )
    if op not in POSITIONS:
        assert "a" in cuda_scalar.expression(instr(op, kind), names, "a")
    if not op.startswith("cast_"):  # Triton's own writer casts
        text, _ = triton_scalar.expression(instr(op, kind), names)
        assert "a" in text
        assert all(
            call in triton_scalar.HELPERS and call in LANEWISE
            for call in re.findall(r"dvk_\w+", text)
        )
