"""The table of primitives: every scalar operation that a rule uses has a row, and what the rows say holds."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import dvk.composer
from dvk.composer.codegen.cpp import scalar as cpp_scalar
from dvk.composer.codegen.cuda import scalar as cuda_scalar
from dvk.composer.codegen.triton import scalar as triton_scalar
from dvk.composer.ir.loops import Instr, Ref
from dvk.composer.ir.primitives import (
    COMPARISONS,
    INTEGERS_ONLY,
    PRIMITIVES,
    REDUCTIONS,
    Primitive,
    propagates_nan,
)
from dvk.composer.lowering.integers import _BITS, _BOOLS
from dvk.composer.lowering.pointwise import BINARY, SIMPLE
from dvk.nanolang.lint.operands import LANEWISE

HALVES = ("h2f({})", "f2h({})", "h2f(f2h({}))")
"""Expressions of float16."""
RULES = "".join(
    path.read_text(encoding="utf-8")
    for path in (Path(dvk.composer.__file__).parent / "lowering").glob("*.py")
)
ASKED = {
    *re.findall(r'pointwise\(\s*"(\w+)"', RULES),
    *SIMPLE.values(),
    *BINARY.values(),
    *_BITS.values(),
    *_BOOLS.values(),
}
WRITERS_OWN = {"iota", "gather", "bounded", "cast"}
"""Reads, indices and conversions, which writers spell themselves."""
STORES = {"scatter"}
"""What is added at computed places becomes a store, not an instruction."""
POSITIONS = {"order", "unorder", "high", "low"}
"""Operations of kernels that find indices, which CUDA has none of."""
WITH_TEXT = sorted(PRIMITIVES.keys() - WRITERS_OWN)


def instr(op: str, kind: str, arity: int) -> Instr:
    return Instr(3, op, tuple(map(Ref, range(arity))), kind, kind, frozenset(), 0)


def kind_of(row: Primitive) -> str:
    if row.name in ("and", "or", "not"):
        return "bool"
    return (
        "int64" if row.integers == "only" or row.name in ("high", "low", "unorder") else "float32"
    )


def test_every_operation_that_rules_ask_for_has_a_row() -> None:
    assert len(ASKED) > 40
    assert ASKED - PRIMITIVES.keys() == STORES
    assert {name for name in PRIMITIVES if name != PRIMITIVES[name].name} == set()


@pytest.mark.parametrize("op", WITH_TEXT)
def test_every_operation_has_a_text_in_every_back_end(op: str) -> None:
    row = PRIMITIVES[op]
    names, kind = list("abcd")[: row.arity], kind_of(row)
    one = instr(op, kind, row.arity)
    texts = [cpp_scalar.scalar_expression(one, names, ["a"], HALVES)]
    if op not in POSITIONS:
        texts.append(cuda_scalar.expression(one, names, "a"))
    texts.append(triton_scalar.expression(one, names)[0])
    for text in texts:
        assert all(re.search(rf"\b{name}\b", text) for name in names), text
    assert all(
        call in triton_scalar.HELPERS and call in LANEWISE
        for call in re.findall(r"dvk_\w+", texts[-1])
    )


@pytest.mark.parametrize("op", ["cast_float16", "cast_bfloat16"])
def test_half_precision_rounds(op: str) -> None:
    one = instr(op, "float32", 1)
    assert "2" in cpp_scalar.scalar_expression(one, ["a"], ["a"], HALVES)
    assert "dvk_get" in cuda_scalar.expression(one, ["a"], "a")


@pytest.mark.parametrize("op", WITH_TEXT)
def test_what_a_row_says_of_nan_and_bounds_holds(op: str) -> None:
    """C's text, as Python, on NaN and on numbers; functions of libm propagate NaN by C's standard."""
    row = PRIMITIVES[op]
    if row.cost > 1 or row.integers == "only" or op in POSITIONS or "__builtin" in str(row.cpp):
        return
    if op in ("and", "or", "not", "signbit", "sign"):
        return

    def value(*operands: float) -> float:
        text = row.text("cpp", "float64").format(*"abcd", c="a", one="1", T="", f="")
        text = re.sub(r"^\((.*) \? (.*) : (.*)\)$", r"(\2 if \1 else \3)", text)
        return float(eval(text.replace("||", "or"), dict(zip("abcd", operands, strict=False))))

    nan = [value(*[math.nan if at == n else 2.0 for at in range(4)]) for n in range(row.arity)]
    if row.nan == "propagates":
        assert all(map(math.isnan, nan))
    if row.nan == "tests":
        assert not any(map(math.isnan, nan))
    if row.bound == "operands":
        assert abs(value(-3.0, 2.0, 2.5)) <= 3.0


def test_groups_derive_from_rows() -> None:
    assert COMPARISONS == {"lt", "le", "gt", "ge", "eq", "ne"}
    assert INTEGERS_ONLY == {"band", "bor", "bxor", "shl", "shr", "idiv", "irem"}
    assert propagates_nan("cast_bfloat16") and not propagates_nan("cast_int64")
    assert propagates_nan("reduce_sum") and not propagates_nan("reduce_max")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("kind", ["float32", "int64", "int32", "int8", "uint8"])
def test_the_identity_of_a_reduction_changes_nothing(name: str, kind: str) -> None:
    identity = REDUCTIONS[name].identity(kind)
    for value in (0, 1, 100):
        joined = {
            "sum": identity + value,
            "prod": identity * value,
            "max": max(identity, value),
            "min": min(identity, value),
        }
        assert joined[name] == value
