"""Elementary functions in Triton, from `triton.language` alone: inverse and hyperbolic functions, remainders.

Each source is correct in both precisions if the functions it calls are; polynomials are fitted to one precision.
"""

from __future__ import annotations

_TEXTS = {
    "dvk_atan": """\
@triton.jit
def dvk_atan(x):
    # atan(a) is π/4 + atan((a - 1) / (a + 1)) between tan(π/8) and tan(3π/8), and π/2 - atan(1 / a) above.
    a = tl.abs(x)
    high, middle = a > 2.414213562373095, a > 0.4142135623730951
    t = tl.where(high, -1.0 / a, tl.where(middle, (a - 1.0) / (a + 1.0), a))
    s = t * t
    p = 0.050481385120797445 * s - 0.08624676145249494
    p = p * s + 0.11071365021884794
    p = p * s - 0.14284151193628614
    p = p * s + 0.19999977258688387
    p = p * s - 0.333333332792548
    y = t + t * s * p
    y = tl.where(high, 1.5707963267948966 + y, tl.where(middle, 0.7853981633974483 + y, y))
    return tl.where(x < 0.0, -y, tl.where(x == 0.0, x, y))
""",
    "dvk_atan_f64": """\
@triton.jit
def dvk_atan_f64(x):
    # atan(a) is π/4 + atan((a - 1) / (a + 1)) between tan(π/8) and tan(3π/8), and π/2 - atan(1 / a) above.
    a = tl.abs(x)
    high, middle = a > 2.414213562373095, a > 0.4142135623730951
    t = tl.where(high, -1.0 / a, tl.where(middle, (a - 1.0) / (a + 1.0), a))
    s = t * t
    p = -0.013918229291024428 * s + 0.030635704112969497
    p = p * s - 0.04104436265755082
    p = p * s + 0.04719395030027433
    p = p * s - 0.052580415542977796
    p = p * s + 0.058819252531928636
    p = p * s - 0.066666420200551662
    p = p * s + 0.076923067360001735
    p = p * s - 0.090909090670099901
    p = p * s + 0.11111111110754729
    p = p * s - 0.14285714285711519
    p = p * s + 0.19999999999999992
    p = p * s - 0.33333333333333333
    y = t + t * s * p
    y = tl.where(high, 1.5707963267948966 + y, tl.where(middle, 0.7853981633974483 + y, y))
    return tl.where(x < 0.0, -y, tl.where(x == 0.0, x, y))
""",
    "dvk_tan": """\
@triton.jit
def dvk_tan(x):
    return tl.where(x == 0.0, x, tl.sin(x) / tl.cos(x))
""",
    "dvk_atan2": """\
@triton.jit
def dvk_atan2(y, x):
    a, b = tl.abs(x), tl.abs(y)
    # The quotient of two infinities or two zeros would be NaN.
    t = tl.where(a == b, tl.where(a == 0.0, 0.0, 1.0), b / a)
    r = dvk_atan(t)
    back = x.to(tl.int32, bitcast=True) < 0
    r = tl.where(back, 3.141592653589793 - r, r)
    r = tl.where((x != x) | (y != y), x + y, r)
    return tl.where(y.to(tl.int32, bitcast=True) < 0, -r, r)
""",
    "dvk_atan2_f64": """\
@triton.jit
def dvk_atan2_f64(y, x):
    a, b = tl.abs(x), tl.abs(y)
    # The quotient of two infinities or two zeros would be NaN.
    t = tl.where(a == b, tl.where(a == 0.0, 0.0, 1.0), b / a)
    r = dvk_atan_f64(t)
    back = x.to(tl.int64, bitcast=True) < 0
    r = tl.where(back, 3.141592653589793 - r, r)
    r = tl.where((x != x) | (y != y), x + y, r)
    return tl.where(y.to(tl.int64, bitcast=True) < 0, -r, r)
""",
    "dvk_sinh": """\
@triton.jit
def dvk_sinh(x):
    a = tl.abs(x)
    e = dvk_expm1(tl.minimum(a, 1.0))
    h = tl.exp(0.5 * a)
    y = tl.where(a < 1.0, 0.5 * (e + e / (e + 1.0)), (0.5 * h) * h - 0.5 / (h * h))
    return tl.where(x == 0.0, x, tl.where(x != x, x, tl.where(x < 0.0, -y, y)))
""",
    "dvk_cosh": """\
@triton.jit
def dvk_cosh(x):
    h = tl.exp(0.5 * tl.abs(x))
    return (0.5 * h) * h + 0.5 / (h * h)
""",
    "dvk_asinh": """\
@triton.jit
def dvk_asinh(x):
    a = tl.abs(x)
    near = tl.minimum(a, 1e9)
    y = dvk_log1p(near + near * near / (1.0 + tl.sqrt(1.0 + near * near)))
    y = tl.where(a > 1e9, tl.log(a) + 0.6931471805599453, y)
    return tl.where(x == 0.0, x, tl.where(x != x, x, tl.where(x < 0.0, -y, y)))
""",
    "dvk_acosh": """\
@triton.jit
def dvk_acosh(x):
    t = tl.minimum(x, 1e9) - 1.0
    y = tl.where(x > 1e9, tl.log(x) + 0.6931471805599453, dvk_log1p(t + tl.sqrt(2.0 * t + t * t)))
    return tl.where(x >= 1.0, y, float("nan"))
""",
    "dvk_atanh": """\
@triton.jit
def dvk_atanh(x):
    a = tl.abs(x)
    y = tl.where(a == 1.0, float("inf"), 0.5 * dvk_log1p((a + a) / (1.0 - a)))
    return tl.where(x == 0.0, x, tl.where(x < 0.0, -y, y))
""",
    "dvk_asin": """\
@triton.jit
def dvk_asin(x):
    a = tl.abs(x)
    r = tl.sqrt((1.0 - a) * (1.0 + a))
    # The smaller of the legs is divided by the larger.
    y = tl.where(a < r, dvk_atan(a / r), 1.5707963267948966 - dvk_atan(r / a))
    return tl.where(x == 0.0, x, tl.where(x < 0.0, -y, y))
""",
    "dvk_acos": """\
@triton.jit
def dvk_acos(x):
    a = tl.abs(x)
    r = tl.sqrt((1.0 - a) * (1.0 + a))
    y = tl.where(a < r, 1.5707963267948966 - dvk_atan(a / r), dvk_atan(r / a))
    return tl.where(x < 0.0, 3.141592653589793 - y, y)
""",
    "dvk_log10": """\
@triton.jit
def dvk_log10(x):
    return tl.log(x) * 0.4342944819032518
""",
    "dvk_fmod": """\
@triton.jit
def dvk_fmod(x, y):
    # Long division in double: a quotient of 28 bits times a divisor of 24 is exact, and ten of them span all of single precision.
    left, by = tl.abs(x).to(tl.float64), tl.abs(y).to(tl.float64)
    for step in tl.static_range(10):
        part = by * 268435456.0 ** (9 - step)
        quotient = tl.floor(left / part)
        left = tl.where(left < part, left, left - quotient * part)
        left = tl.where(left < 0.0, left + part, left)
    r = left.to(tl.float32)
    r = tl.where(r == 0.0, x * 0.0, tl.where(x < 0.0, -r, r))
    r = tl.where(tl.abs(y) == float("inf"), x, r)
    return tl.where(y == 0.0, float("nan"), tl.where(x - x == 0.0, tl.where(y == y, r, y), x - x))
""",
}
_INSIDE: dict[str, tuple[str, ...]] = {
    "dvk_atan2": ("dvk_atan",),
    "dvk_asin": ("dvk_atan",),
    "dvk_acos": ("dvk_atan",),
    "dvk_sinh": ("dvk_expm1",),
    "dvk_asinh": ("dvk_log1p",),
    "dvk_acosh": ("dvk_log1p",),
    "dvk_atanh": ("dvk_log1p",),
}
"""Helper → the helpers that it calls."""
_OF_BOTH = ("dvk_expm1", "dvk_log1p", "dvk_atan")
"""Operations with a separate double-precision source."""
DOUBLE = tuple(
    name
    for name in _TEXTS
    if f"{name}_f64" in _TEXTS or any(inner in _OF_BOTH for inner in _INSIDE.get(name, ()))
)
"""Helpers with a separate double-precision source."""


def _double(name: str) -> str:
    text = _TEXTS.get(f"{name}_f64", _TEXTS[name].replace(f"def {name}(", f"def {name}_f64("))
    for inner in _INSIDE.get(name, ()):
        if inner in _OF_BOTH:
            text = text.replace(f"{inner}(", f"{inner}_f64(")
    return text


FUNCTION_NEEDS = _INSIDE | {
    f"{name}_f64": tuple(f"{i}_f64" if i in _OF_BOTH else i for i in _INSIDE.get(name, ()))
    for name in DOUBLE
}
FUNCTIONS = {name: text for name, text in _TEXTS.items() if not name.endswith("_f64")} | {
    f"{name}_f64": _double(name) for name in DOUBLE
}
"""Helper → its source."""
