"""The environment of every text: the names that it may use, constants, and preludes; `runtime.nano` holds the functions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dvk.composer.codegen.cpp import scalar as cpp_scalar
from dvk.composer.codegen.triton import scalar as triton_scalar

CONSTANTS: dict[str, float] = {
    "SQRT_HALF": math.sqrt(0.5),
    "SQRT_2_PI": math.sqrt(2 / math.pi),
    "SIXTH": 1 / 6,
    "SELU_ALPHA": 1.6732632423543772,
    "SELU_SCALE": 1.0507009873554805,
}
"""Constants of seventeen digits in formulas, by name."""

CPP_PRELUDE = """\
#define VECTOR256 __attribute__((target("prefer-vector-width=256")))
static constexpr long cdiv(long a, long b) { return (a + b - 1) / b; }
static inline long least(long a, long b) { return a < b ? a : b; }
"""

NAMES: dict[str, dict[str, str]] = {
    "triton": {
        "jit": "dvk_jit",
        "cdiv": "dvk_cdiv",
        "pow2": "dvk_pow2",
        "F": "torch.nn.functional",
        "strided": "dvk_strided",
        "nhwc": "dvk_nhwc",
        "held": "dvk_held",
        "graphed": "dvk_graphed",
    },
    "cpp": {
        "cdiv": "dvk_cdiv",
        "F": "torch.nn.functional",
        "strided": "dvk_strided",
        "nhwc": "dvk_nhwc",
        "held": "dvk_held",
    },
}
"""Back end → name in a text → its meaning in the frame."""


def triton_helpers(words: set[str]) -> str:
    """The helper functions that a text calls."""
    used = {n for n in triton_scalar.HELPERS if n in words}
    used = triton_scalar.with_needs(used)
    return "\n\n".join(text for name, text in triton_scalar.HELPERS.items() if name in used)


def cpp_prelude(sizes: Mapping[str, int]) -> str:
    """The prelude of C++ text: vector math, fp16 and bf16, sizes."""
    numbers = [f"constexpr long {name} = {value};" for name, value in sizes.items()]
    numbers += [f"constexpr double {name} = {value!r};" for name, value in CONSTANTS.items()]
    return "\n".join(
        [cpp_scalar.PRELUDE + cpp_scalar.FUNCTIONS + cpp_scalar.BF16 + CPP_PRELUDE, *numbers]
    )
