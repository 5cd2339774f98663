"""The table of primitives: one row per scalar operation and reduction of the IR, with everything that the composer knows of it.

A text is a template, or one per type: by its name, by `float`, or by `""` for all others. Places: `{0}`, `{1}`, `{2}` operands; `{c}` the
first operand as a condition; `{f}` the suffix of C's single-precision functions; `{T}` the register type; `{one}` and `{inf}` literals of
it. A `dvk_` function in a Triton text has a variant for double precision if the writer has one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dvk.composer.ir.nodes import BYTES, FLOATS

Text = str | Mapping[str, str]
COST = 8
"""Cost of a function of ten and more instructions, in simple operations."""


@dataclass(frozen=True)
class Primitive:
    """One scalar operation."""

    name: str
    arity: int
    cpp: Text
    cuda: Text
    triton: Text
    result: Literal["operands", "bool", "int64", "float32"] = "operands"
    """Type of the result; `operands` is the type that it computes in."""
    cost: int = 1
    """Simple operations on a CPU that take as long."""
    gpu_cost: int = 1
    """The same on a GPU."""
    nan: Literal["propagates", "tests", "drops"] = "propagates"
    """The result is NaN if an operand is; or it is a boolean; or NaN may disappear."""
    integers: Literal["yes", "no", "only"] = "no"
    """Rules may use it on integers; `only`: on integers of one type, with C's signs."""
    bound: Literal["none", "unit", "operands"] = "none"
    """Magnitude of finite results: at most 1, or that of the largest operand."""
    discontinuous: bool = False
    """Rounding the operand first can change the result by more than rounding."""

    def text(self, backend: Literal["cpp", "cuda", "triton"], kind: str) -> str:
        """The template for a register type; empty if the back end has none."""
        text: Text = getattr(self, backend)
        if isinstance(text, str):
            return text
        return text.get(kind) or text.get("float" if kind in FLOATS else "") or text.get("", "")


def _function(
    name: str,
    arity: int = 1,
    *,
    cpp: str = "",
    triton: str = "",
    gpu_cost: int = COST,
    bound: Literal["none", "unit"] = "none",
) -> Primitive:
    """A function of libm with the same name in CUDA; Triton has another name for it or takes it from `device_functions`."""
    places = ", ".join(f"{{{n}}}" for n in range(arity))
    return Primitive(
        name,
        arity,
        f"{cpp or name}{{f}}({places})",
        f"{name}{{f}}({places})",
        f"{triton or f'dvk_{name}'}({places})",
        cost=COST,
        gpu_cost=gpu_cost,
        bound=bound,
    )


def _infix(
    name: str,
    sign: str,
    result: Literal["operands", "bool"] = "operands",
    nan: Literal["propagates", "tests", "drops"] = "propagates",
    integers: Literal["yes", "no", "only"] = "yes",
    triton: str = "",
) -> Primitive:
    """The same binary operator in all back ends."""
    text = f"{{0}} {sign} {{1}}"
    python = f"{{0}} {triton or sign} {{1}}"
    return Primitive(name, 2, f"({text})", text, python, result, nan=nan, integers=integers)


def _rounding(name: str, c: str, cuda: str, triton: str) -> Primitive:
    return Primitive(
        name,
        1,
        f"__builtin_{c}{{f}}({{0}})",
        f"{cuda}{{f}}({{0}})",
        f"{triton}({{0}})",
        bound="operands",
        discontinuous=True,
    )


def _extreme(name: str, sign: str, bits: str) -> Primitive:
    both = f"tl.{name}imum({{0}}, {{1}}"
    nan = ", propagate_nan=tl.PropagateNan.ALL)"
    return Primitive(
        name,
        2,
        # For +0 and -0 return the second, as eager's vectors do.
        f"(({{1}} {sign} {{0}} || {{0}} != {{0}}) ? {{0}} : {{1}})",
        {"bool": f"{{0}} {bits} {{1}}", "": f"dvk_{name}::of({{0}}, {{1}})"},
        {"bool": f"{{0}} {bits} {{1}}", "float": both + nan, "": both + ")"},
        integers="yes",
        bound="operands",
    )


_MIXED = "{c} ? {1} : {2}"
PRIMITIVES: Mapping[str, Primitive] = {
    p.name: p
    for p in (
        # functions of one floating-point value
        _function("exp", cpp="dvk_exp", triton="tl.exp"),
        _function("log", triton="tl.log"),
        _function("log1p"),
        _function("expm1"),
        _function("tanh", bound="unit"),
        _function("erf", bound="unit"),
        _function("sin", triton="tl.sin", bound="unit"),
        _function("cos", triton="tl.cos", bound="unit"),
        _function("exp2", triton="tl.exp2", gpu_cost=1),
        _function("log2", triton="tl.log2", gpu_cost=1),
        _function("tan"),
        _function("asin"),
        _function("acos"),
        _function("atan"),
        _function("sinh"),
        _function("cosh"),
        _function("asinh"),
        _function("acosh"),
        _function("atanh"),
        _function("log10"),
        # of two
        _function("atan2", 2),
        _function("fmod", 2),
        Primitive(
            "sigmoid",
            1,
            "({one} / ({one} + dvk_exp{f}(-{0})))",
            "{one} / ({one} + exp{f}(-{0}))",
            "1.0 / (1.0 + tl.exp(-{0}))",
            cost=COST,
            gpu_cost=COST,
            bound="unit",
        ),
        Primitive("sqrt", 1, "__builtin_sqrt{f}({0})", "sqrt{f}({0})", "tl.sqrt({0})"),
        Primitive("rsqrt", 1, "({one} / __builtin_sqrt{f}({0}))", "rsqrt{f}({0})", "tl.rsqrt({0})"),
        Primitive("reciprocal", 1, "({one} / {0})", "{one} / {0}", "1.0 / {0}"),
        # rounding and signs
        _rounding("floor", "floor", "floor", "tl.floor"),
        _rounding("ceil", "ceil", "ceil", "tl.ceil"),
        _rounding("trunc", "trunc", "trunc", "dvk_trunc"),
        _rounding("round", "nearbyint", "rint", "dvk_round"),
        Primitive(
            "abs",
            1,
            {"float": "__builtin_fabs{f}({0})", "": "({0} < 0 ? -{0} : {0})"},
            {"float": "fabs{f}({0})", "": "{0} < 0 ? -{0} : {0}"},
            "tl.abs({0})",
            integers="yes",
            bound="operands",
        ),
        Primitive("neg", 1, "(-{0})", "-{0}", "-{0}", integers="yes", bound="operands"),
        Primitive(
            "sign",
            1,
            "({T})(({0} > 0) - ({0} < 0))",
            "({T})(({0} > 0) - ({0} < 0))",
            "({0} > 0).to({T}) - ({0} < 0).to({T})",
            nan="drops",
            bound="unit",
            discontinuous=True,
        ),
        # arithmetic
        _infix("add", "+"),
        _infix("sub", "-"),
        _infix("mul", "*"),
        # a product and the scales of both of its factors
        Primitive(
            "scaled",
            4,
            "({0} * {1} * ({2} * {3}))",
            "{0} * {1} * ({2} * {3})",
            "{0} * {1} * ({2} * {3})",
            cost=3,
            gpu_cost=3,
        ),
        _infix("div", "/", integers="no"),
        _extreme("max", "<", "|"),
        _extreme("min", ">", "&"),
        # comparisons and booleans
        _infix("lt", "<", "bool", "tests"),
        _infix("le", "<=", "bool", "tests"),
        _infix("gt", ">", "bool", "tests"),
        _infix("ge", ">=", "bool", "tests"),
        _infix("eq", "==", "bool", "tests"),
        _infix("ne", "!=", "bool", "tests"),
        _infix("and", "&", "bool", "tests", "no"),
        _infix("or", "|", "bool", "tests", "no"),
        Primitive("not", 1, "(!{c})", "!{c}", "{0} == 0", "bool", nan="tests", integers="yes"),
        Primitive("isnan", 1, "({0} != {0})", "{0} != {0}", "{0} != {0}", "bool", nan="tests"),
        Primitive(
            "isinf",
            1,
            {"float": "(__builtin_fabs{f}({0}) == {inf})"},
            {"float": "fabs{f}({0}) == {inf}"},
            'tl.abs({0}) == float("inf")',
            "bool",
            nan="tests",
        ),
        Primitive(
            "signbit",
            1,
            "dvk_signbit{f}({0})",
            {"float32": "__float_as_int({0}) < 0", "": "__double_as_longlong({0}) < 0"},
            {
                "float32": "{0}.to(tl.int32, bitcast=True) < 0",
                "": "{0}.to(tl.int64, bitcast=True) < 0",
            },
            "bool",
            nan="tests",
        ),
        Primitive(
            "where",
            3,
            f"({_MIXED})",
            _MIXED,
            "tl.where({0}, {1}, {2})",
            nan="drops",
            integers="yes",
            bound="operands",
        ),
        # integers of one type; a shift is by less than the type's bits, a divisor is not 0
        _infix("band", "&", integers="only"),
        _infix("bor", "|", integers="only"),
        _infix("bxor", "^", integers="only"),
        _infix("shl", "<<", integers="only"),
        _infix("shr", ">>", integers="only"),
        _infix("idiv", "/", integers="only", triton="//"),
        _infix("irem", "%", integers="only"),
        # an extreme and its position in one integer; CUDA has no kernel that finds positions
        Primitive("order", 1, "dvk_order({0})", "", "dvk_order({0})", "int64", nan="drops"),
        Primitive("unorder", 1, "dvk_unorder({0})", "", "dvk_unorder({0})", "float32"),
        Primitive("high", 1, "({0} >> 32)", "", "{0} >> 32", integers="yes"),
        Primitive("low", 1, "({0} & 0xffffffffL)", "", "{0} & 0xFFFFFFFF", integers="yes"),
        # another name; writers convert types, choose loop variables and guard reads
        Primitive("as", 1, "{0}", "{0}", "{0}", cost=0, integers="yes", bound="operands"),
        Primitive("cast", 1, "", "", "", cost=0, integers="yes", bound="operands"),
        Primitive("iota", 0, "", "", "", cost=0, integers="yes"),
        Primitive("bounded", 1, "", "", "", cost=0, integers="yes", bound="operands"),
        Primitive("gather", 2, "", "", "", integers="yes"),
    )
}


def _named(*wanted: bool) -> frozenset[str]:
    return frozenset(name for name, each in zip(PRIMITIVES, wanted, strict=True) if each)


_ROWS = tuple(PRIMITIVES.values())
FUNCTIONS = tuple(p.name for p in _ROWS if p.cost == COST and p.cuda == f"{p.name}{{f}}({{0}})")
"""Functions of one floating-point value that C and CUDA have under the same name."""
COSTLY = _named(*(p.cost == COST for p in _ROWS))
"""Scalar functions of ten and more instructions."""
GPU_COSTLY = _named(*(p.gpu_cost == COST for p in _ROWS))
"""The same on a GPU."""
INTEGERS_ONLY = _named(*(p.integers == "only" for p in _ROWS))
"""Operations on integers of one type."""
INTEGER_SAFE = _named(*(p.integers != "no" for p in _ROWS))
"""Operations that rules may use on integers."""
PREDICATES = _named(*(p.result == "bool" for p in _ROWS))
"""Operations with a boolean result."""
COMPARISONS = _named(*(p.result == "bool" and p.arity == 2 and p.integers == "yes" for p in _ROWS))
DISCONTINUOUS = _named(*(p.discontinuous for p in _ROWS))
UNIT = _named(*(p.bound == "unit" for p in _ROWS))
"""Functions with values between −1 and 1."""
BOUNDED_BY_OPERANDS = _named(*(p.bound == "operands" for p in _ROWS))
"""Operations whose result is no larger than the largest operand; float16 values above 1,024 are integers, so rounding adds nothing."""


def result_type(op: str, compute: str) -> str:
    """The register type of an operation's result."""
    row = PRIMITIVES.get(op)
    return compute if row is None or row.result == "operands" else row.result


def propagates_nan(op: str) -> bool:
    """The result of an instruction is NaN whenever an operand is."""
    if op in PRIMITIVES:
        return PRIMITIVES[op].nan == "propagates"
    if op.startswith("reduce_"):
        return REDUCTIONS[op.removeprefix("reduce_")].propagates_nan
    return op.startswith("cast_") and op.removeprefix("cast_") in FLOATS


@dataclass(frozen=True)
class Reduction:
    """An associative operation of many values, by `reduce_` and `scan_` instructions."""

    name: str
    sign: str
    """C's operator, or the name of OpenMP's reduction."""
    number: float
    """The identity among floating-point values."""
    propagates_nan: bool

    @property
    def is_extreme(self) -> bool:
        return math.isinf(self.number)

    def identity(self, kind: str) -> int | float:
        """The identity among values of a register type."""
        if not self.is_extreme or kind in FLOATS:
            return self.number if kind in FLOATS else int(self.number)
        bits = 8 * BYTES[kind]
        lowest, highest = (
            (0, (1 << bits) - 1)
            if kind in ("uint8", "bool")
            else (-(1 << bits - 1), (1 << bits - 1) - 1)
        )
        return lowest if self.number < 0 else highest


REDUCTIONS: Mapping[str, Reduction] = {
    r.name: r
    for r in (
        Reduction("sum", "+", 0.0, True),
        Reduction("prod", "*", 1.0, True),
        # Rows of minima and maxima keep NaN by a second variable, which some kernels leave out.
        Reduction("max", "max", -math.inf, False),
        Reduction("min", "min", math.inf, False),
    )
}


def reduction(op: str) -> Reduction:
    """The row of a `reduce_` or `scan_` instruction."""
    return REDUCTIONS[op.partition("_")[2]]
