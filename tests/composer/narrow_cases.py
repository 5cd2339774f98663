"""Small modules of quantised values: casts of 8-bit floating-point types, dynamic quantisation, and products of codes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.composer.triton_cases import Case, kinds, rand

E4M3, E5M2, BRAIN = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16
EDGES = [0.0, 1e-9, 1e-3, 0.0019, 0.01, 1.0, 1.0625, 447.0, 448.0, 464.0, 464.1, 470.0, 480.0, 1e4]
EDGES += [57344.0, 61439.0, 61440.0, 61441.0, 65536.0, float("inf"), float("nan")]


def edges() -> torch.Tensor:
    """Numbers around the ends of both types, and NaN."""
    values = torch.tensor(EDGES)
    return torch.cat([values, -values, torch.randn(40) * 10])


def codes(*shape: int, dtype: torch.dtype = E4M3) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(-127, 128, shape, dtype=torch.int8)


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) + 0.1


def shown(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Where NaN is, and the other values, infinities as large numbers."""
    known = torch.where(x == x, x, 0.0)
    return x != x, known.clamp(-1e5, 1e5)


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return (x.float() / scale).clamp(-448, 448).to(E4M3), scale


def rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
    return (x.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


def through_codes(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    made, scale = rounded(x)
    return (made.to(t.dtype) * scale.to(t.dtype)) @ (w.to(t.dtype) * t).t()


def scaled(
    x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    if s.dtype == torch.float64:
        return (x.double() @ w.double().t()) * s * t + b
    return torch._scaled_mm(x, w.t(), s, t, bias=b, out_dtype=BRAIN)


def summed(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.silu(torch._int_mm(x, w.t()).to(s.dtype) * s * t)


def infinite(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return shown(through_codes(x, w, t).float())


def with_infinity(*shape: int) -> torch.Tensor:
    x = torch.randn(*shape)
    x[1, 2] = float("inf")
    return x


NARROW_CASES: dict[str, Case] = {
    "infinite_activations": Case(
        infinite, lambda: [with_infinity(20, 64), whole(24, 64), scales(24, 1)], 2e-3
    ),
    "casts_to_e4m3": Case(lambda x: shown(x.to(E4M3).float()), lambda: [edges()], 1e-7),
    "casts_to_e5m2": Case(lambda x: shown(x.to(E5M2).float()), lambda: [edges()], 1e-7),
    "codes_of_halves": Case(
        lambda x: (x * 2).to(E4M3), lambda: [rand(33, 5, dtype=torch.float16)], 0.04
    ),
    "wide_codes": Case(
        lambda x: shown(x.float() * 2), lambda: [edges().to(E5M2).reshape(2, -1)], 1e-7
    ),
    "codes_moved": Case(
        lambda x, y: torch.cat([x, y], 1).t().contiguous().float(),
        lambda: [codes(5, 6), codes(5, 7)],
        1e-7,
    ),
    "quantised_rows": Case(quantised, lambda: [rand(7, 50)], 0.04, kinds("persistent")),
    "codes_times_scales": Case(
        lambda x, s, w, t: (x.float() * s) @ (w.float() * t).t(),
        lambda: [codes(20, 96), scales(20, 1), codes(24, 96), scales(24, 1)],
        2e-6,
        kinds("product"),
    ),
    "whole_codes": Case(
        lambda x, s, w, t, b: F.linear(x.to(s.dtype) * s, w.to(t.dtype) * t, b),
        lambda: [whole(3, 5, 40), torch.tensor(0.3), whole(24, 40), scales(24, 1), rand(24)],
        2e-6,
        kinds("product", "skinny"),
    ),
    "rounded_then_multiplied": Case(
        through_codes, lambda: [rand(20, 64), whole(24, 64), scales(24, 1)], 2e-3, kinds("product")
    ),
    "scaled_product": Case(
        scaled,
        lambda: [codes(32, 96), codes(48, 96), scales(1), scales(1), rand(48, dtype=BRAIN)],
        6e-3,
        kinds("product"),
    ),
    "scaled_rows": Case(
        scaled,
        lambda: [codes(32, 64), codes(48, 64), scales(32, 1), scales(1, 48), rand(48, dtype=BRAIN)],
        6e-3,
        kinds("product"),
    ),
    "sums_of_whole_codes": Case(
        summed,
        lambda: [whole(24, 64), whole(32, 64), scales(24, 1), scales(1, 32)],
        2e-6,
        kinds("product"),
    ),
}
