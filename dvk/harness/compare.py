"""Decide whether one output agrees with the truth: pure functions over tensors, child side.

An element y with truth t is accepted when |y − t| ≤ tol · (|t| + rms(t)), written so that NaN fails.
`tol` follows the precision class and the reference's own error e_self against float64:

    fp64   8·e_self within [1e-12, 1e-8]
    fp32   8·e_self within [1e-5, 1e-4]
    tf32   2e-3 (TF32 keeps 10 bits of mantissa: 5e-4 an operand)
    half   4·e_self, at least 4 units in the last place of the output type, at most 5e-2
    exact  equality

Where the reference jumps (rounding steps, thresholds), two correct programs differ by a whole step on
the few elements that sit on an edge. Such elements are accepted only if the float64 truth itself
jumps there or as often under input noise of one float32 rounding, see `Case.jumps` in `cases.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

FLOOR = {"fp64": 1e-12, "fp32": 1e-5, "tf32": 2e-3, "half": 0.0}
CEILING = {"fp64": 1e-8, "fp32": 1e-4, "tf32": 2e-3, "half": 5e-2}


@dataclass(frozen=True)
class Disagreement:
    """Where an output is wrong."""

    count: int
    """Elements out of tolerance."""
    worst: float
    """Largest error relative to |t| + rms(t) over all elements."""
    message: str
    """For a reader who wants to fix it; empty when nothing is wrong."""


def relative_error(y: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """|y − t| / (|t| + rms(t)), elementwise in float64; 0 where both are the same non-finite value."""
    y, truth = y.double(), truth.double()
    finite = torch.isfinite(truth)
    kept = truth[finite]
    rms = kept.square().mean().sqrt() if kept.numel() else torch.zeros((), dtype=torch.float64, device=truth.device)
    scale = truth.abs() + rms
    error = torch.where(scale > 0, (y - truth).abs() / scale, (y - truth).abs())
    same = (y == truth) | (y.isnan() & truth.isnan())
    return torch.where(same, torch.zeros_like(error), error)


def tolerance(precision: str, dtype: torch.dtype, self_error: float) -> float:
    """Largest admitted relative error for an output of `dtype`."""
    if precision == "exact" or not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    floor = FLOOR[precision]
    if precision == "half":
        floor = 4 * torch.finfo(dtype).eps if dtype.itemsize <= 2 else 4 * torch.finfo(torch.bfloat16).eps
    factor = 4.0 if precision == "half" else 8.0
    return min(CEILING[precision], max(floor, factor * self_error))


def quick_form(truth: torch.Tensor | None, reference: torch.Tensor, tol: float) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Expected values and their scale in float32; None where float32 is too coarse for the tolerance or values are not finite."""
    if truth is None or tol < 5e-6 or not reference.is_floating_point() or not truth.numel():
        return None
    target = truth.float()
    scale = target.abs() + truth.square().mean().sqrt().float()
    usable = bool(torch.isfinite(scale).all()) and bool(torch.isfinite(reference).all()) and float(scale.min()) > 0
    return (target, scale) if usable else None


def quick_worst(y: torch.Tensor, quick: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Largest relative error; NaN or infinity when some element is not finite."""
    target, scale = quick
    return float(torch.sub(y.float(), target).abs_().div_(scale).max())


def compare(name: str, y: torch.Tensor, reference: torch.Tensor, truth: torch.Tensor | None, tol: float) -> tuple[Disagreement, torch.Tensor]:
    """Values of one output against truth (or, without one, the reference).

    Returns:
        What disagrees, and the mask of elements out of tolerance.
    """
    # What the reference itself makes non-finite by overflowing is accepted as the reference has it, or as the truth does.
    error = relative_error(y, truth if truth is not None else reference)
    if truth is not None:
        beside = relative_error(y, reference)
        error = torch.where(torch.isfinite(truth) & torch.isfinite(reference), error, torch.minimum(_no_nan(error), _no_nan(beside)))
    wrong = ~(error <= tol)
    count = int(wrong.sum())
    known = _no_nan(error)
    worst = float(known.max()) if known.numel() else 0.0
    if not count:
        return Disagreement(0, worst, ""), wrong
    at = int(torch.where(wrong, known, torch.full_like(known, -1.0)).argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), y.shape)) if y.dim() else ()
    want = (truth if truth is not None else reference).reshape(-1)[at].item()
    got = y.reshape(-1)[at].item()
    message = (f"{name}: {count:,} of {y.numel():,} elements differ by more than {tol:.1e} of scale; worst at index {list(index)}: "
               f"expected {want:.8g}, got {got:.8g}")
    return Disagreement(count, worst, message), wrong


def _no_nan(error: torch.Tensor) -> torch.Tensor:
    return torch.where(error.isnan(), torch.full_like(error, float("inf")), error)


def outside(name: str, y: object, reference: torch.Tensor) -> str | None:
    """What is wrong with type, dtype, shape, device or strides of one output; None when nothing is."""
    if not isinstance(y, torch.Tensor):
        return f"{name}: expected a tensor, got {type(y).__name__}"
    if type(y) is not torch.Tensor and type(y) is not torch.nn.Parameter:
        return f"{name}: expected a plain tensor, got {type(y).__name__}"
    if y.dtype != reference.dtype:
        return f"{name}: expected dtype {reference.dtype}, got {y.dtype}"
    if y.shape != reference.shape:
        return f"{name}: expected shape {tuple(reference.shape)}, got {tuple(y.shape)}"
    if y.device != reference.device:
        return f"{name}: expected device {reference.device}, got {y.device}"
    if y.layout != reference.layout:
        return f"{name}: expected layout {reference.layout}, got {y.layout}"
    strides = [(a, b) for a, b, size in zip(y.stride(), reference.stride(), y.shape, strict=True) if size > 1]
    if any(a != b for a, b in strides):
        return f"{name}: expected strides {reference.stride()}, got {y.stride()}"
    return None
