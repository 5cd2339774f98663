"""Conversions to floating-point types of 8 bits, which round half to even.

A GPU has an instruction for it. Triton's interpreter truncates and has no subnormal numbers: there the codes are computed bit by bit.
"""

from __future__ import annotations

NARROW_FUNCTIONS = {
    "dvk_codes": """\
@triton.jit
def dvk_codes(x, digits: tl.constexpr, bias: tl.constexpr, last: tl.constexpr, nan: tl.constexpr):
    # The code of x: a sign, exponent bits, `digits` fraction bits. `last` is the code of all that is larger, `nan` that of NaN.
    a = tl.abs(x)
    bits = a.to(tl.int32, bitcast=True)
    drop: tl.constexpr = 23 - digits
    normal = ((bits + (1 << (drop - 1)) - 1 + ((bits >> drop) & 1)) >> drop) - ((127 - bias) << digits)
    small = (a * 2.0 ** (bias - 1 + digits) + 8388608.0 - 8388608.0).to(tl.int32)
    code = tl.where(a < 2.0 ** (1 - bias), small, tl.minimum(normal, last))
    code = tl.where(x == x, code, nan)
    return (code | ((x.to(tl.int32, bitcast=True) >> 24) & 128)).to(tl.uint8)


# Whether kernels run in Triton's interpreter.
DVK_BY_BITS = tl.constexpr(not isinstance(dvk_codes, triton.JITFunction))
""",
    "dvk_float8_e4m3fn": """\
@triton.jit
def dvk_float8_e4m3fn(x):
    # Larger numbers become the largest one.
    if DVK_BY_BITS:
        return dvk_codes(x, 3, 7, 126, 127).to(tl.float8e4nv, bitcast=True)
    return x.to(tl.float8e4nv)
""",
    "dvk_float8_e5m2": """\
@triton.jit
def dvk_float8_e5m2(x):
    # Larger numbers become infinite; the instruction alone would give the largest one.
    if DVK_BY_BITS:
        return dvk_codes(x, 2, 15, 124, 127).to(tl.float8e5, bitcast=True)
    code = x.to(tl.float8e5).to(tl.uint8, bitcast=True)
    code = tl.where(x >= 61440.0, 124, tl.where(x <= -61440.0, 252, code)).to(tl.uint8)
    return code.to(tl.float8e5, bitcast=True)
""",
    "dvk_wide_float8_e4m3fn": """\
@triton.jit
def dvk_wide_float8_e4m3fn(x):
    wide = x.to(tl.float32)
    if DVK_BY_BITS:
        wide = tl.where((x.to(tl.uint8, bitcast=True) & 127) == 127, float("nan"), wide)
    return wide
""",
    "dvk_wide_float8_e5m2": """\
@triton.jit
def dvk_wide_float8_e5m2(x):
    wide = x.to(tl.float32)
    if DVK_BY_BITS:
        code = x.to(tl.uint8, bitcast=True)
        far = tl.where(code < 128, float("inf"), float("-inf"))
        wide = tl.where((code & 127) == 124, far, tl.where((code & 127) > 124, float("nan"), wide))
    return wide
""",
}
NARROW_NEEDS = {name: ("dvk_codes",) for name in NARROW_FUNCTIONS if name != "dvk_codes"}
