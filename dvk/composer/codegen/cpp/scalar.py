"""Scalar C++: types, literals and one expression per operation.

Math functions are declared with the vector signatures of libmvec, so that loops with `exp` or `erf` vectorise without -ffast-math. NaN
propagates through max and min.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dvk.composer.ir.loops import Bound, Instr, Kernel, Ref
from dvk.composer.ir.nodes import FLOATS
from dvk.composer.ir.primitives import FUNCTIONS as IN_LIBM
from dvk.composer.ir.primitives import PRIMITIVES, reduction
from dvk.composer.ir.symint import Constant, Ratio, SymbolicSize

STORAGE = {
    "float32": "float",
    "float64": "double",
    "float16": "unsigned short",
    "bfloat16": "unsigned short",
    "int64": "long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "unsigned char",
}
REGISTER = {**STORAGE, "bool": "bool"}

PRELUDE = """\
#if __has_include(<features.h>)
#include <features.h>
#endif
// GCC would move a call whose result a selection may drop, as in softplus, into a branch, and then not vectorise the loop.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize ("no-tree-sink")
#endif
// The vector forms of all of these came with glibc 2.35; elsewhere the loops stay scalar, and link.
#define VMATH __attribute__((const))
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
#undef VMATH
#define VMATH __attribute__((simd("notinbranch"), const))
#endif
#endif
extern "C" {
VMATH float expf(float); VMATH float logf(float); VMATH float log1pf(float); VMATH float expm1f(float);
VMATH float tanhf(float); VMATH float erff(float); VMATH float sinf(float); VMATH float cosf(float);
VMATH float exp2f(float); VMATH float log2f(float);
VMATH double exp(double); VMATH double log(double); VMATH double log1p(double); VMATH double expm1(double);
VMATH double tanh(double); VMATH double erf(double); VMATH double sin(double); VMATH double cos(double);
VMATH double exp2(double); VMATH double log2(double);
}
// The vector expf leaves its fast path for a whole vector when one argument is below -87, as masked softmax has them. Such
// arguments are moved by a whole number, which is exact, and the result is multiplied by exp of it: denormals are kept.
static inline float dvk_expf(float x) {
  const float by = x < -104.0f ? 0.0f : x < -86.0f ? 1.26641655e-14f : 1.0f;
  const float y = x < -104.0f ? -104.0f : x;
  return expf(x < -86.0f ? y + 32.0f : y) * by;
}
static inline double dvk_exp(double x) {
  const double by = x < -746.0 ? 0.0 : x < -700.0 ? 1.6038108905486378e-28 : 1.0;
  const double y = x < -746.0 ? -746.0 : x;
  return exp(x < -700.0 ? y + 64.0 : y) * by;
}
"""
FUNCTIONS = (
    'extern "C" {\n'
    + "".join(
        f"VMATH float {name}f(float); VMATH double {name}(double);\n" for name in IN_LIBM[10:]
    )
    + """\
VMATH float atan2f(float, float); VMATH double atan2(double, double); float fmodf(float, float);
}
// GCC 12 fails on vectors with its __builtin_signbit.
static inline bool dvk_signbitf(float x) { int i; __builtin_memcpy(&i, &x, 4); return i < 0; }
static inline bool dvk_signbit(double x) { long i; __builtin_memcpy(&i, &x, 8); return i < 0; }
"""
)
ORDER = """\
// As integers (negative ones mirrored) floats keep their order; NaN comes last, and both zeros are one.
static inline long dvk_order(float x) {
  int i; float y = x != x ? __builtin_nanf("") : x == 0.0f ? 0.0f : x; __builtin_memcpy(&i, &y, 4);
  return i ^ ((i >> 31) & 0x7fffffff);
}
static inline float dvk_unorder(long order) {
  int i = (int)order; i ^= (i >> 31) & 0x7fffffff; float x; __builtin_memcpy(&x, &i, 4);
  return x;
}
"""
GATHER = """\
// Read before it is asked whether the place exists: a load under a condition would not become a vector's.
static inline bool dvk_in(long at, long size) { return (unsigned long)at < (unsigned long)size; }
static inline long dvk_at(long at, long size) { return dvk_in(at, size) ? at : 0; }
template <class T> static inline T dvk_pick(bool in, T value, T other) { return in ? value : other; }
"""
HALF = """\
// By integers and floats: GCC makes no vectors of conversions from and to _Float16. Rounds to nearest even, NaN stays NaN. A float that
// is added to a number of 2^13 times its power of two keeps 10 bits after its first; no subnormal float is an operand of a product.
static inline float h2f(unsigned short h) {
  const unsigned t = h & 0x7fffu; unsigned u = (t << 13) + 0x70000000u, low = t | 0x3f000000u; float f, g;
  __builtin_memcpy(&f, &u, 4); __builtin_memcpy(&g, &low, 4);
  f *= 1.92592994e-34f; g -= 0.5f;
  f = (int)t < 0x400 ? g : f; __builtin_memcpy(&u, &f, 4);
  u |= (unsigned)(h & 0x8000u) << 16; __builtin_memcpy(&f, &u, 4); return f;
}
static inline unsigned short f2h(float x) {
  unsigned u, e, s; __builtin_memcpy(&u, &x, 4);
  float a = __builtin_fabsf(x), c; a = a > 65536.0f ? 65536.0f : a;
  __builtin_memcpy(&e, &a, 4); e &= 0x7f800000u; __builtin_memcpy(&c, &e, 4);
  c *= 32768.0f; c = c > 2.0f ? c : 2.0f;
  c += 4.0f * a; __builtin_memcpy(&s, &c, 4);
  const unsigned r = x != x ? 0x7e00u : (s >> 13 & 0x7c00u) + (s & 0xfffu);
  return (unsigned short)(r | (u >> 16 & 0x8000u));
}
static inline float dvk_rounded_half(float x) {
  unsigned u, e; __builtin_memcpy(&u, &x, 4);
  float c, y; e = u & 0x7f800000u; __builtin_memcpy(&c, &e, 4);
  c *= 12288.0f; c = c > 0.75f ? c : 0.75f;
  y = (x + c) - c; y = __builtin_fabsf(x) >= 65520.0f ? x * 3.0e38f : y;
  __builtin_memcpy(&e, &y, 4); e |= u & 0x80000000u; __builtin_memcpy(&y, &e, 4); return y;
}
"""
HALVES = """\
#ifdef __F16C__
typedef short dvk_halves __attribute__((vector_size(16)));
typedef float dvk_floats __attribute__((vector_size(32)));
#endif
static inline void dvk_read_halves(float* __restrict to, const unsigned short* from, long n) {
  long l = 0;
#ifdef __F16C__
  for (; l + 8 <= n; l += 8) {
    dvk_halves h; __builtin_memcpy(&h, from + l, 16);
    const dvk_floats f = __builtin_ia32_vcvtph2ps256(h); __builtin_memcpy(to + l, &f, 32);
  }
#endif
  for (; l < n; ++l) to[l] = h2f(from[l]);
}
static inline void dvk_write_halves(unsigned short* to, const float* __restrict from, long n) {
  long l = 0;
#ifdef __F16C__
  for (; l + 8 <= n; l += 8) {
    dvk_floats f; __builtin_memcpy(&f, from + l, 32);
    const dvk_halves h = (dvk_halves)__builtin_ia32_vcvtps2ph256(f, 0); __builtin_memcpy(to + l, &h, 16);
  }
#endif
  for (; l < n; ++l) to[l] = f2h(from[l]);
}
"""
BF16 = """\
static inline float bf2f(unsigned short h) { unsigned u = (unsigned)h << 16; float f; __builtin_memcpy(&f, &u, 4); return f; }
static inline unsigned short f2bf(float f) {
  unsigned u; __builtin_memcpy(&u, &f, 4);
  unsigned r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return f != f ? 0x7fc0 : (unsigned short)r;
}
"""


def prelude(kernels: Iterable[Kernel]) -> str:
    """Declarations that the kernels need."""
    kernels = list(kernels)
    ordered = any(i.op in ("order", "unorder") for k in kernels for i in k.instrs)
    types = {b.dtype for k in kernels for b in (*k.inputs, *k.outputs)}
    types |= {
        i.op.removeprefix("cast_") for k in kernels for i in k.instrs if i.op.startswith("cast_")
    }
    placed = any(i.op == "gather" for k in kernels for i in k.instrs)
    functions = any(f"{name}f(" in FUNCTIONS for k in kernels for i in k.instrs for name in [i.op])
    parts = (
        (FUNCTIONS, functions),
        (ORDER, ordered),
        (GATHER, placed),
        (BF16, "bfloat16" in types),
        (HALF + HALVES, "float16" in types),
    )
    return PRELUDE + "".join(text for text, wanted in parts if wanted)


def literal(value: bool | int | float, want: str) -> str:
    """A number as a C++ literal of the wanted register type."""
    if want == "bool":
        return "true" if value else "false"
    if isinstance(value, (SymbolicSize, Ratio, Constant)):
        return f"({REGISTER[want]}){value}"
    if want in ("float32", "float64"):
        value = value if isinstance(value, float) else float(value)
        if math.isinf(value):
            return ("-" if value < 0 else "") + (
                "__builtin_inff()" if want == "float32" else "__builtin_inf()"
            )
        if math.isnan(value):
            return '__builtin_nan("")'
        return repr(value) + ("f" if want == "float32" else "")
    if want == "int64" and value == -(1 << 63):
        return "(-__LONG_MAX__ - 1)"
    return f"{int(value)}L" if want == "int64" else f"({REGISTER[want]}){int(value)}"


def loaded(cell: str, dtype: str, half: tuple[str, str, str]) -> str:
    """Convert an element in memory to a register value."""
    return {
        "bfloat16": f"bf2f({cell})",
        "float16": half[0].format(cell),
        "bool": f"({cell} != 0)",
    }.get(dtype, cell)


def stored(value: str, dtype: str, half: tuple[str, str, str]) -> str:
    """Convert a register value to its memory type."""
    kinds = {
        "bfloat16": f"f2bf({value})",
        "float16": half[1].format(value),
        "bool": f"(unsigned char)({value} ? 1 : 0)",
    }
    return kinds.get(dtype, f"({STORAGE[dtype]}){value}")


def scalar_expression(
    instr: Instr, a: list[str], condition: list[str], half: tuple[str, str, str]
) -> str:
    """One scalar operation on operands of the compute type."""
    op, kind = instr.op, instr.compute
    if instr.call is not None:
        return instr.call.form.format(*a)
    if op == "cast_float16":
        return half[2].format(a[0])
    if op == "cast_bfloat16":
        return f"bf2f(f2bf({a[0]}))"
    if op.startswith("cast_"):
        return a[0]
    if op in ("max", "min") and not isinstance(instr.args[1], Ref):
        sign = "<" if op == "max" else ">"  # a number is not NaN: GCC makes one instruction of this
        return f"({a[0]} {sign} {a[1]} ? {a[1]} : {a[0]})"
    form = PRIMITIVES[op].text("cpp", kind)
    assert form, op
    return form.format(
        *a,
        c=condition[0],
        f="f" if kind == "float32" else "",
        T=REGISTER[kind],
        one=literal(1, kind),
        inf=literal(math.inf, kind) if kind in FLOATS else "",
    )


def inside(offset: str, bound: Bound) -> str:
    """Source text of the check that an index is within its dimension."""
    part, count = bound
    lo, hi = part.span()
    return " & ".join(
        [
            *([f"({offset} >= 0)"] if lo < 0 else []),
            *([f"({offset} < {count!r})"] if hi >= count else []),
        ]
    )


def identity(reduce: Instr) -> str:
    """The initial value of a reduction; without a type, since the accumulator may be wider than its values."""
    row = reduction(reduce.op)
    if not row.is_extreme:
        return str(int(row.number))
    least, most = (
        ("-__builtin_inf()", "__builtin_inf()")
        if reduce.type in FLOATS
        else ("-__LONG_MAX__ - 1", "__LONG_MAX__")
    )
    return least if row.number < 0 else most


def may_be_nan(reduce: Instr) -> bool:
    """A maximum or minimum in which NaN wins."""
    return reduction(reduce.op).is_extreme and reduce.type in FLOATS
