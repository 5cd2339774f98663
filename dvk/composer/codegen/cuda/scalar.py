"""Scalar CUDA: types, literals, one expression per operation, and the device functions that kernels share.

Accuracy is that of CUDA's single-precision functions compiled without fast-math: at most 2 ulp, division and square root correctly rounded,
products rounded before they are added (as in eager PyTorch). NaN propagates through max and min. No header is included: explicit
instructions convert fp16 and bf16.
"""

from __future__ import annotations

import math

from dvk.composer.ir.loops import Instr
from dvk.composer.ir.primitives import PRIMITIVES
from dvk.composer.ir.symint import Ratio, SymbolicSize

STORAGE = {
    "float32": "float",
    "float64": "double",
    "float16": "dvk_f16",
    "bfloat16": "dvk_bf16",
    "int64": "long long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "dvk_bool",
}
REGISTER = {**STORAGE, "float16": "float", "bfloat16": "float", "bool": "bool"}
FLOAT = ("float32", "float64")
SINGLE_MAX = (2 - 2**-23) * 2.0**127

PRELUDE = """\
#ifndef DVK_ALIGNED
#define DVK_ALIGNED 1  // every address is a multiple of 16 bytes
#endif
#define DVK static __device__ __forceinline__
struct dvk_f16 { unsigned short bits; };
struct dvk_bf16 { unsigned short bits; };
struct dvk_bool { unsigned char bits; };

template <class T> DVK T dvk_get(T x) { return x; }
DVK bool dvk_get(dvk_bool x) { return x.bits != 0; }
DVK float dvk_get(dvk_bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
DVK float dvk_get(dvk_f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
DVK dvk_f16 dvk_half(float x) {
  dvk_f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
DVK dvk_bf16 dvk_brain(float x) {
  dvk_bf16 y;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  const unsigned u = __float_as_uint(x);
  y.bits = x != x ? 0x7fc0 : (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
  return y;
}

template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) dvk_pack { T x[N]; };
template <int N, class T> DVK dvk_pack<T, N> dvk_load(const T* p) {
#if DVK_ALIGNED
  return *reinterpret_cast<const dvk_pack<T, N>*>(p);
#else
  dvk_pack<T, N> q;
#pragma unroll
  for (int i = 0; i < N; ++i) q.x[i] = p[i];
  return q;
#endif
}
template <class T, int N> DVK void dvk_store(T* p, const dvk_pack<T, N>& q) {
#if DVK_ALIGNED
  *reinterpret_cast<dvk_pack<T, N>*>(p) = q;
#else
#pragma unroll
  for (int i = 0; i < N; ++i) p[i] = q.x[i];
#endif
}

struct dvk_sum { template <class T> DVK T of(T a, T b) { return a + b; } };
struct dvk_prod { template <class T> DVK T of(T a, T b) { return a * b; } };
struct dvk_max {
  template <class T> DVK T of(T a, T b) { return a < b || b != b ? b : a; }
#if __CUDA_ARCH__ >= 800
  DVK float of(float a, float b) { float y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
#endif
};
struct dvk_min {
  template <class T> DVK T of(T a, T b) { return b < a || b != b ? b : a; }
#if __CUDA_ARCH__ >= 800
  DVK float of(float a, float b) { float y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
#endif
};

// One more element of a row whose maximum and sum of exp(x - maximum) are made in one pass. A thread that has seen nothing but
// -inf would compute -inf - (-inf).
DVK float dvk_shift(float top) { return top == -__int_as_float(0x7f800000) ? 0.0f : top; }
DVK void dvk_softmax_step(float& top, float& total, float x) {
  const float peak = dvk_max::of(top, x), shift = dvk_shift(peak);
  total = total * expf(top - shift) + expf(x - shift);
  top = peak;
}
// One more element of a row whose mean and sum of squares around it are made in one pass (Welford).
DVK void dvk_variance_step(float& count, float& mean, float& squares, float x) {
  count += 1.0f;
  const float gap = x - mean, step = __fdividef(gap, count);
  mean += step;
  squares += gap * (gap - step);
}
// Squares around the mean of a whole from those around the mean of a part (Chan): `sum` over the part's `count` elements.
DVK float dvk_around(float squares, float sum, float count, float mean) {
  const float gap = count > 0.0f ? sum / count - mean : 0.0f;
  return squares + count * gap * gap;
}

// The same value in every one of LANES neighbouring threads of a warp.
template <class Op, int LANES, class T> DVK T dvk_warp(T x) {
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
// The same value in all WARPS warps of the block; `cells` belongs to this reduction alone.
template <class Op, int WARPS, class T> DVK T dvk_block(T x, T* cells) {
  x = dvk_warp<Op, 32>(x);
  if (threadIdx.x % 32 == 0) cells[threadIdx.x / 32] = x;
  __syncthreads();
  return dvk_warp<Op, WARPS>(cells[threadIdx.x % WARPS]);
}
// The same value in all threads of a column: COLUMNS of them lie side by side, LANES threads deep.
template <class Op, int LANES, int COLUMNS, class T> DVK T dvk_column(T x, T* cells) {
  cells[threadIdx.x] = x;
  __syncthreads();
  x = cells[threadIdx.x % COLUMNS];
#pragma unroll
  for (int lane = 1; lane < LANES; ++lane) x = Op::of(x, cells[lane * COLUMNS + threadIdx.x % COLUMNS]);
  return x;
}
"""


def literal(value: bool | int | float, want: str) -> str:
    """A number as a literal of the wanted register type."""
    if want == "bool":
        return "true" if value else "false"
    if isinstance(value, (SymbolicSize, Ratio)):
        return f"({REGISTER[want]}){value}"
    if want not in FLOAT:
        value = int(value)
        if want == "int64":
            text = f"{value}LL" if value > -(2**63) else "-9223372036854775807LL - 1"
            return f"({text})" if value < 0 else text
        return f"({REGISTER[want]})({value})"
    value = float(value)
    single = want == "float32"
    if single and abs(value) > SINGLE_MAX:
        value = math.copysign(math.inf, value)
    if math.isinf(value):
        text = (
            "__int_as_float(0x7f800000)" if single else "__longlong_as_double(0x7ff0000000000000LL)"
        )
        return f"(-{text})" if value < 0 else text
    if math.isnan(value):
        return (
            "__int_as_float(0x7fffffff)" if single else "__longlong_as_double(0x7fffffffffffffffLL)"
        )
    text = repr(value) + ("f" if single else "")
    return f"({text})" if value < 0 else text


def unsigned(size: int, wide: bool) -> str:
    """A size as an unsigned operand of a division."""
    if not isinstance(size, SymbolicSize):
        return f"{size}u"
    return f"(unsigned long long){size}" if wide else f"(unsigned){size}"


def real(size: int) -> str:
    """A size as a float."""
    return f"(float){size}" if isinstance(size, SymbolicSize) else f"{size}.0f"


def cast(text: str, have: str, want: str) -> str:
    """Convert a register value of type `have` to type `want`."""
    if have == want:
        return text
    if want == "bool":
        return f"({text} != 0)"
    if have in FLOAT and want in ("int8", "int16", "uint8"):
        # Out of range, narrow integers wrap as they do in PyTorch; a direct conversion saturates.
        return f"(({REGISTER[want]})(int){text})"
    return f"(({REGISTER[want]}){text})"


def stored(text: str, dtype: str) -> str:
    """Convert a register value to the memory type of a dtype."""
    wrap = {
        "float16": "dvk_half({})",
        "bfloat16": "dvk_brain({})",
        "bool": "dvk_bool{{(unsigned char)({})}}",
    }
    return wrap.get(dtype, "{}").format(text)


def expression(instr: Instr, a: list[str], condition: str) -> str:
    """One scalar operation.

    Args:
        a: operands of the compute type.
        condition: the first operand as a bool.
    """
    op, kind = instr.op, instr.compute
    if op == "cast_float16":
        return f"dvk_get(dvk_half({a[0]}))"
    if op == "cast_bfloat16":
        return f"dvk_get(dvk_brain({a[0]}))"
    if op.startswith("cast_"):
        return a[0]
    form = PRIMITIVES[op].text("cuda", kind)
    assert form, op
    return form.format(
        *a,
        c=condition,
        f="f" if kind == "float32" else "",
        T=REGISTER[kind],
        one=literal(1, kind),
        inf=literal(math.inf, kind) if kind in FLOAT else "",
    )
