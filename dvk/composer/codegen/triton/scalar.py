"""Scalar operations in Triton: expressions over registers, and the helper functions they need.

Accuracy is that of the fp32 class (relative error ≤ 1e-6), not bitwise IEEE: on a GPU `exp` is
`ex2.approx` (its error grows with |x|, 2e-6 at 80), `/` is `div.full` (2 ulp, 0 for divisors above
2^126) and `sqrt` and `rsqrt` are the approximate instructions (1–2 ulp). `log`, `sin` and `cos` are
libdevice's. Helpers use `triton.language` alone, so that they also run in the interpreter,
where libdevice does not exist.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from dvk.composer.codegen.analysis.online import nan_shows_anyway, of_magnitudes
from dvk.composer.codegen.triton.device_functions import FUNCTION_NEEDS, FUNCTIONS
from dvk.composer.codegen.triton.narrow_functions import NARROW_FUNCTIONS, NARROW_NEEDS
from dvk.composer.ir.loops import Argument, Instr, Kernel, Ref
from dvk.composer.ir.nodes import BYTES, EIGHTHS, INTS
from dvk.composer.ir.primitives import INTEGERS_ONLY, PRIMITIVES, reduction, result_type
from dvk.composer.ir.symint import SymbolicSize

TYPES = {
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "float32": "tl.float32",
    "float64": "tl.float64",
    "int8": "tl.int8",
    "int16": "tl.int16",
    "int32": "tl.int32",
    "int64": "tl.int64",
    "uint8": "tl.uint8",
    "float8_e4m3fn": "tl.float8e4nv",
    "float8_e5m2": "tl.float8e5",
    "bool": "tl.int1",
}
FLOAT = ("float32", "float64")

HELPERS = {
    "dvk_erf": """\
@triton.jit
def dvk_erf(x):
    # N. Juffa's erff (1 ulp) without its branch: lanes that disagree would make a warp walk both sides in turn.
    a = tl.abs(x)
    s = a * a
    p = tl.fma(a, -3.88396438e-3, 2.42546219e-2)
    p = tl.fma(tl.fma(a, -1.72853470e-5, 3.83197126e-4), s, p)
    p = tl.fma(tl.fma(tl.fma(p, a, -1.06777877e-1), a, -6.34846687e-1), a, -1.28717512e-1)
    q = tl.fma(tl.fma(s, -5.96761703e-4, 4.99119423e-3), s, -2.67681349e-2)
    q = tl.fma(tl.fma(tl.fma(q, s, 1.12819925e-1), s, -3.76125336e-1), s, 1.28379166e-1)
    y = tl.where(a > 0.921875, 1.0 - tl.exp(tl.fma(p, a, -a)), tl.fma(q, a, a))
    return tl.where(x < 0.0, -y, y)
""",
    "dvk_erf_f64": """\
@triton.jit
def dvk_erf_f64(x):
    return tl.erf(x)
""",
    "dvk_log1p": """\
@triton.jit
def dvk_log1p(x):
    # N. Juffa's log1pf (1 ulp): x + 1 = 2^e (1 + m) with m between -1/4 and 1/2, found without rounding x.
    u = x + 1.0
    e = (u.to(tl.int32, bitcast=True) - 0x3F400000) & -8388608
    m = (x.to(tl.int32, bitcast=True) - e).to(tl.float32, bitcast=True)
    m += tl.fma((0x40800000 - e).to(tl.float32, bitcast=True), 0.25, -1.0)
    s = m * m
    r = tl.fma(tl.fma(s, -4.53948975e-2, -1.32274792e-1), s, -1.66412741e-1)
    t = tl.fma(tl.fma(s, 1.05468750e-1, 1.44911826e-1), s, 1.99887201e-1)
    r = tl.fma(t, m, tl.fma(r, s, -2.50002742e-1))
    r = tl.fma(tl.fma(r, m, 3.33335280e-1), m, -4.99999970e-1)
    y = tl.fma(e.to(tl.float32), 8.2629582e-08, tl.fma(r, s, m))
    y = tl.where((x > -1.0) & (x < float("inf")), y, tl.where(x == -1.0, float("-inf"), tl.where(x > 0.0, x, float("nan"))))
    return tl.where(x == 0.0, x, y)
""",
    "dvk_log1p_f64": """\
@triton.jit
def dvk_log1p_f64(x):
    # Kahan: the error of log(1 + x) and that of x / ((1 + x) - 1) cancel.
    u = 1.0 + x
    y = tl.log(u) * (x / (u - 1.0))
    y = tl.where(u == 1.0, x, y)
    return tl.where(u == float("inf"), u, y)
""",
    "dvk_log1p_unit": """\
@triton.jit
def dvk_log1p_unit(x):
    # Within 2 ulp between 0 and 1, in a third of the instructions of a logarithm and a division.
    p = tl.fma(x, -0.0032439809, 0.019851262)
    p = tl.fma(p, x, -0.05695916)
    p = tl.fma(p, x, 0.10603617)
    p = tl.fma(p, x, -0.1530557)
    p = tl.fma(p, x, 0.19675931)
    p = tl.fma(p, x, -0.24954133)
    p = tl.fma(p, x, 0.33329964)
    p = tl.fma(p, x, -0.49999902)
    return tl.fma(p * x, x, x)
""",
    "dvk_log1p_unit_half": """\
@triton.jit
def dvk_log1p_unit_half(x):
    # Within 2^-16 between 0 and 1, for results that are rounded to fp16 or bf16.
    p = tl.fma(x, -0.02386899, 0.10122187)
    p = tl.fma(p, x, -0.21004832)
    p = tl.fma(p, x, 0.32520655)
    p = tl.fma(p, x, -0.49936135)
    return x * tl.fma(p, x, 0.9999916)
""",
    "dvk_expm1_half": """\
@triton.jit
def dvk_expm1_half(x):
    # Within 2^-15, for results that are rounded to fp16 or bf16.
    return tl.where(tl.abs(x) < 0.03125, tl.fma(x * x, tl.fma(x, 0.16666667, 0.5), x), tl.exp(x) - 1.0)
""",
    "dvk_tanh_half": """\
@triton.jit
def dvk_tanh_half(x):
    # Within 2^-15, for results that are rounded to fp16 or bf16.
    a = tl.abs(x)
    y = tl.where(a < 0.0625, tl.fma(a * a, a * -0.33333333, a), 1.0 - 2.0 / (tl.exp(2.0 * a) + 1.0))
    return tl.where(x < 0.0, -y, y)
""",
    "dvk_tanh_score": """\
@triton.jit
def dvk_tanh_score(x):
    # Within 2^-11, for scores that are rounded to bf16.
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
""",
    "dvk_expm1": """\
@triton.jit
def dvk_expm1(x):
    # Near 0 the Taylor series: exp(x) - 1 would lose every digit.
    p = tl.fma(x, 2.7557319e-07, 2.7557319e-06)
    p = tl.fma(p, x, 2.4801587e-05)
    p = tl.fma(p, x, 1.9841270e-04)
    p = tl.fma(p, x, 1.3888889e-03)
    p = tl.fma(p, x, 8.3333333e-03)
    p = tl.fma(p, x, 4.1666667e-02)
    p = tl.fma(p, x, 1.6666667e-01)
    p = tl.fma(p, x, 0.5)
    return tl.where(tl.abs(x) < 0.5, tl.fma(p * x, x, x), tl.exp(x) - 1.0)
""",
    "dvk_expm1_f64": """\
@triton.jit
def dvk_expm1_f64(x):
    # Kahan: (exp(x) - 1) / log(exp(x)) is accurate although both parts are not.
    u = tl.exp(x)
    y = (u - 1.0) * (x / tl.log(u))
    y = tl.where(u == 1.0, x, y)
    return tl.where(tl.abs(x) > 1.0, u - 1.0, y)
""",
    "dvk_tanh": """\
@triton.jit
def dvk_tanh(x):
    t = dvk_expm1(-2.0 * tl.abs(x))
    y = -t / (t + 2.0)
    return tl.where(x < 0.0, -y, y)
""",
    "dvk_tanh_f64": """\
@triton.jit
def dvk_tanh_f64(x):
    t = dvk_expm1_f64(-2.0 * tl.abs(x))
    y = -t / (t + 2.0)
    return tl.where(x < 0.0, -y, y)
""",
    "dvk_round": """\
@triton.jit
def dvk_round(x):
    # Adding 2^23 leaves no fraction bits, so the addition itself rounds half to even.
    big = tl.where(x < 0.0, -8388608.0, 8388608.0)
    return tl.where(tl.abs(x) < 8388608.0, (x + big) - big, x)
""",
    "dvk_round_f64": """\
@triton.jit
def dvk_round_f64(x):
    low = tl.floor(x)
    high = x - low > 0.5
    tie = x - low == 0.5
    odd = low - 2.0 * tl.floor(low * 0.5) != 0.0
    return low + tl.where(high | (tie & odd), 1.0, 0.0)
""",
    "dvk_trunc": """\
@triton.jit
def dvk_trunc(x):
    return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))
""",
    "dvk_max": """\
@triton.jit
def dvk_max(x, axis: tl.constexpr, keep_dims: tl.constexpr):
    # tl.max drops NaN. As integers (negative ones mirrored) floats keep their order and NaN comes last.
    bits = tl.where(x == x, x, float("nan")).to(tl.int32, bitcast=True)
    top = tl.max(bits ^ ((bits >> 31) & 0x7FFFFFFF), axis, keep_dims=keep_dims)
    return (top ^ ((top >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
""",
    "dvk_max_f64": """\
@triton.jit
def dvk_max_f64(x, axis: tl.constexpr, keep_dims: tl.constexpr):
    # tl.max drops NaN: see whether there was one.
    top = tl.max(x, axis, keep_dims=keep_dims)
    lost = tl.max((x != x).to(tl.int32), axis, keep_dims=keep_dims) > 0
    return tl.where(lost, float("nan"), top)
""",
    "dvk_larger": """\
@triton.jit
def dvk_larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "dvk_larger_int": """\
@triton.jit
def dvk_larger_int(a, b):
    return tl.maximum(a, b)
""",
    "dvk_order": """\
@triton.jit
def dvk_order(x):
    # As integers (negative ones mirrored) floats keep their order; NaN comes last, and both zeros are one.
    bits = tl.where(x == x, tl.where(x == 0.0, 0.0, x), float("nan")).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
""",
    "dvk_unorder": """\
@triton.jit
def dvk_unorder(order):
    bits = order.to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
""",
    "dvk_product": """\
@triton.jit
def dvk_product(a, b):
    return a * b
""",
    **FUNCTIONS,
    **NARROW_FUNCTIONS,
}
NEEDS = {
    "dvk_tanh": ("dvk_expm1",),
    "dvk_tanh_f64": ("dvk_expm1_f64",),
    **FUNCTION_NEEDS,
    **NARROW_NEEDS,
}


def called(op: str) -> str:
    """The function of one text for all types that a primitive calls; empty for other texts."""
    text = PRIMITIVES[op].triton if op in PRIMITIVES else ""
    match = re.fullmatch(r"([\w.]+)\([^()]*\)", text) if isinstance(text, str) else None
    return match[1] if match else ""


def helper(name: str, type_: str) -> str:
    """The helper's variant for a register type."""
    double = f"{name}_f64"
    return double if type_ == "float64" and double in HELPERS else name


def _variant(instr: Instr, name: str) -> str:
    """The helper that an instruction calls: a shorter one if its operator rounds to fp16 or bf16, or its operand is between 0 and 1."""
    marks = instr.prim.attrs if instr.prim is not None else {}
    if marks.get("score"):
        return f"{name}_score"
    if instr.compute == "float32":
        unit = f"{name}_unit" if marks.get("unit") else name
        if marks.get("coarse") and f"{unit}_half" in HELPERS:
            return f"{unit}_half"
        if unit in HELPERS:
            return unit
    return helper(name, instr.compute)


def scan_joiner(scan: Instr) -> str:
    """The helper function that combines two values of a running maximum."""
    return "dvk_larger" if scan.type in FLOAT else "dvk_larger_int"


def helpers_of(kernel: Kernel) -> set[str]:
    """Names of the helper functions a kernel calls."""
    result: set[str] = set()
    for instr in kernel.instrs:
        name = called(instr.op)
        if name.startswith("dvk_"):
            result.add(_variant(instr, name))
        elif (
            instr.op in ("reduce_max", "reduce_min")
            and instr.type in FLOAT
            and not nan_shows_anyway(kernel, instr)
            and not of_magnitudes(kernel, instr)
        ):
            result.add(helper("dvk_max", instr.type))
        elif instr.op in ("reduce_prod", "scan_prod"):
            result.add("dvk_product")
        elif instr.op == "scan_max":
            result |= {
                scan_joiner(instr),
                *([helper("dvk_max", instr.type)] if instr.type in FLOAT else []),
            }
    types = {buffer.dtype for buffer in (*kernel.inputs, *kernel.outputs)}
    types |= {instr.prim.dtype for instr in kernel.instrs if instr.prim is not None}
    for dtype in types.intersection(EIGHTHS):
        result |= {f"dvk_{dtype}", f"dvk_wide_{dtype}"}
    return with_needs(result)


def with_needs(result: set[str]) -> set[str]:
    """Helpers and the helpers that they call."""
    while more := {need for name in result for need in NEEDS.get(name, ())} - result:
        result = result | more
    return result


def prelude(kernels: Iterable[Kernel], text: str = "") -> str:
    """Source of the helper functions that the kernels call, in a fixed order; empty when there are none.

    Args:
        text: of the module; loops over time steps in it call helpers of their own.
    """
    used = {name for kernel in kernels for part in kernel.parts for name in helpers_of(part)}
    used |= with_needs({name for name in ("dvk_tanh", "dvk_tanh_f64") if f"{name}(" in text})
    return "\n\n".join(text for name, text in HELPERS.items() if name in used)


def literal(value: bool | int | float, want: str) -> str:
    """A number as source; in a binary operation Triton gives it the type of the other operand.

    Triton raises for an integer outside this type; PyTorch wraps it.
    """
    if want == "bool":
        return str(bool(value))
    if isinstance(value, SymbolicSize):
        return str(value)
    if want in INTS:
        least = 0 if want == "uint8" else -(1 << (8 * BYTES[want] - 1))
        return str((int(value) - least) % (1 << 8 * BYTES[want]) + least)
    if want not in FLOAT:
        return str(int(value))
    value = value if isinstance(value, float) else float(value)
    return f'float("{value}")' if math.isinf(value) or math.isnan(value) else repr(value)


def full(value: bool | int | float, want: str) -> str:
    """A number as a scalar tensor of exactly the wanted type."""
    return f"tl.full([], {literal(value, want)}, {TYPES[want]})"


def identity(reduce: Instr) -> str:
    """The identity of a reduction or scan."""
    value = reduction(reduce.op).identity(reduce.type)
    return literal(value, reduce.type) if isinstance(value, float) else str(value)


def cast(text: str, have: str, want: str) -> str:
    """Convert a register value of type `have` to type `want`."""
    if have == want:
        return text
    if want == "bool":
        return f"({text} != 0)"
    if have in EIGHTHS and want != "float16":
        wide = f"dvk_wide_{have}({text})"
        return wide if want == "float32" else f"{wide}.to({TYPES[want]})"
    if want in EIGHTHS:
        return f"dvk_{want}({text})" if have in FLOAT else f"dvk_{want}({text}.to(tl.float32))"
    if have in FLOAT and want in ("int8", "int16", "uint8"):
        # Out of range, narrow integers wrap as they do in PyTorch; a direct conversion saturates.
        return f"{text}.to(tl.int32).to({TYPES[want]})"
    return f"{text}.to({TYPES[want]})"


def _reciprocal(divisor: Argument) -> float | None:
    """What to multiply by instead of dividing by a number; None where it is not a normal float32.

    `/` takes eight instructions and is up to 2 ulp off; PyTorch's own kernels divide by a number in this way.
    """
    if isinstance(divisor, (Ref, SymbolicSize)) or not divisor or not math.isfinite(divisor):
        return None
    factor = 1.0 / divisor
    return factor if 2.0**-126 <= abs(factor) < 2.0**127 else None


def expression(instr: Instr, args: list[str]) -> tuple[str, str]:
    """One scalar operation.

    Args:
        args: operands of type `instr.compute` (the first operand of `where`: bool; that of a cast: its own type).

    Returns:
        The expression and its type.
    """
    op, kind = instr.op, instr.compute
    result = result_type(op, kind)
    if instr.call is not None:
        return instr.call.form.format(*args), result
    if (
        op == "div"
        and kind == "float32"
        and instr.prim is not None
        and instr.prim.attrs.get("correctly_rounded")
    ):
        # `/` may be 2 ulp off: below 1 for equal operands
        return f"tl.div_rn({args[0]}, {args[1]})", result
    if op == "div" and kind == "float32" and (factor := _reciprocal(instr.args[1])) is not None:
        return f"{args[0]} * {factor!r}", result
    form = PRIMITIVES[op].text("triton", kind)
    assert form, op
    if name := called(op):
        form = form.replace(name, _variant(instr, name))
    return form.format(*args, T=TYPES[kind]), result


def needs_full(instr: Instr, is_number: list[bool]) -> list[bool]:
    """Literals that need an explicit type in Triton.

    These are the literals in double precision, those in calls, and those without a tensor operand.
    """
    if instr.op == "where":
        alone = all(is_number[1:]) or instr.compute != "float32"
        return [is_number[0], *(number and alone for number in is_number[1:])]
    if instr.op in INTEGERS_ONLY or called(instr.op):
        return is_number
    if instr.op in ("max", "min"):
        return [number and instr.compute != "float32" for number in is_number]
    return [number and (all(is_number) or instr.compute == "float64") for number in is_number]
