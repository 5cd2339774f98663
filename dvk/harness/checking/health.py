"""Degenerate problems: answers that a problem accepts although they were not computed from its inputs.

Five such answers are compared with the expected ones at the judge's tolerance: zeros, one constant, the answer to other inputs, the answer
under other weights, and the input itself. Reductions that concentrate, activations shrunk to a bias and affine parameters left at one and
zero make problems accept them. If another family rejects what native inputs accept, the problem is judged by that family, and the finding
names it. If every family accepts it, a speedup is worthless (`degenerate`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from dvk.harness.checking import compare
from dvk.harness.checking.case import Case
from dvk.harness.checking.case_keys import InputSetKey
from dvk.harness.checking.compare import ExpectedLeaf
from dvk.harness.checking.input_families import NATIVE, NONFINITE
from dvk.harness.checking.narrow_floats import narrow, narrowed
from dvk.harness.checking.reference_runs import Reference
from dvk.harness.checking.weight_sets import WeightSets

EVERYWHERE = "on every kind of inputs tried"
SAMPLE_ROWS = 64
"""Elements compared first: nearly every wrong answer is wrong there."""

Answer = Sequence[Any]


class Cases(Protocol):
    """Interface of `cases.Cases`, which is in a higher layer."""

    keys: list[InputSetKey]
    sets: WeightSets
    reference: Reference

    def get(self, key: InputSetKey) -> Case | None: ...

    def fresh(self, number: int) -> Case: ...

    def state(self, weights: int) -> dict[str, Any]: ...


Probe = Callable[[Cases, Case], Answer | None]
"""Returns a made-up answer; None if a case has none."""


def health(cases: Cases) -> tuple[str, ...]:
    """Return findings such as `accepts zeros: on native inputs; told apart by zero_mean`; empty for a healthy problem."""
    base = cases.get(cases.keys[0]) if cases.keys else None
    if base is None:
        return ()
    fooled = {what: list[str]() for what, make in _PROBES.items() if _accepted(cases, base, make)}
    for case in _families(cases) if fooled else ():  # one at a time: each may be large
        for what, caught in fooled.items():
            if _accepted(cases, case, _PROBES[what]) is False:
                caught.append(case.key.family)
    findings = []
    for what, caught in fooled.items():
        apart = f"on native inputs; told apart by {', '.join(dict.fromkeys(caught))}"
        findings.append(f"accepts {what}: {apart if caught else EVERYWHERE}")
    return tuple(findings)


def _accepted(cases: Cases, case: Case, make: Probe) -> bool | None:
    """Whether the case accepts a made-up answer; None if there is no such answer."""
    answer = make(cases, case)
    return None if answer is None else accepts(case, answer)


def degenerate(findings: Sequence[str]) -> bool:
    """Whether no input separates a real answer from a made-up one, so that no speedup on this problem counts."""
    return any(finding.endswith(EVERYWHERE) for finding in findings)


def accepts(case: Case, answer: Answer) -> bool:
    """Whether every output tensor of `answer` is within the admitted errors."""
    pairs = [
        (a, want)
        for a, want in zip(answer, case.expected, strict=True)
        if isinstance(want.same, torch.Tensor)
    ]
    return all(_sampled(a, want) and compare.values(a, want)[1] is None for a, want in pairs)


def _sampled(answer: torch.Tensor, want: ExpectedLeaf) -> bool:
    """Whether a few rows agree."""
    if want.scale is None or want.same.numel() == 0:
        return True
    rows = len(want.scale)
    chosen = slice(None, None, -(-rows // SAMPLE_ROWS))
    same, mine = (compare.real(t).reshape(rows, -1)[chosen] for t in (want.same, answer))
    few = replace(
        want,
        same=same,
        truth=None,
        scale=want.scale[chosen],
        open=None if want.open is None else want.open.reshape(rows, -1)[chosen],
    )
    return bool(compare.errors(mine, same, few).worst <= 4 * want.admitted.worst) or not want.finite


def _families(cases: Cases) -> Iterator[Case]:
    seen = {NATIVE, *NONFINITE}  # a NaN rejects every answer without one
    for key in cases.keys:
        if key.family not in seen and not key.other_mode and (case := cases.get(key)) is not None:
            seen.add(key.family)
            yield case


def _zeros(cases: Cases, case: Case) -> Answer | None:
    return [
        torch.zeros_like(e.same) if isinstance(e.same, torch.Tensor) else e.same
        for e in case.expected
    ]


def _constant(cases: Cases, case: Case) -> Answer | None:
    if all(not isinstance(e.same, torch.Tensor) or e.same.numel() <= 1 for e in case.expected):
        return None  # a single number is always constant
    return [_level(e.same) if isinstance(e.same, torch.Tensor) else e.same for e in case.expected]


def _other_inputs(cases: Cases, case: Case) -> Answer | None:
    """Return the first timed draw's answer for a native case; another family's under the same weights for a family's."""
    if case.key.family != NATIVE:
        others = _families(cases)
    elif case.backward:
        others = filter(None, [cases.get(replace(case.key, seed=(case.key.seed + 1) % (1 << 31)))])
    else:
        others = iter([cases.fresh(0)])
    for other in others:
        alike = (
            other.key.weights == case.key.weights
            and other.key.variant == case.key.variant
            and other is not case
        )
        if alike and (answer := _fitting([e.same for e in other.expected], case)) is not None:
            return answer
    return None


def _other_weights(cases: Cases, case: Case) -> Answer | None:
    other = 0 if case.key.weights else 1
    cases.state(other)  # vets the set
    if cases.sets.effective(other) == case.key.weights:
        return None
    try:
        answer = cases.reference.run(replace(case.draw, weights=other))
    except Exception:  # noqa: BLE001 - other weights may not go with a family's inputs
        return None
    return _fitting(answer.leaves, case)


def _inputs(cases: Cases, case: Case) -> Answer | None:
    answer = []
    for want in case.expected:
        same = want.same
        like = [
            t
            for t in case.arguments
            if isinstance(same, torch.Tensor) and t.shape == same.shape and t.dtype == same.dtype
        ]
        if isinstance(same, torch.Tensor) and not like:
            return None
        answer.append(like[0] if like else same)
    return answer


def _fitting(answer: list[Any], case: Case) -> Answer | None:
    """Return `answer` if it has the case's shapes."""
    if len(answer) != len(case.expected):
        return None
    pairs = list(zip(answer, case.expected, strict=True))
    fits = all(
        not isinstance(e.same, torch.Tensor)
        or (isinstance(a, torch.Tensor) and a.shape == e.same.shape)
        for a, e in pairs
    )
    return answer if fits else None


def _level(tensor: torch.Tensor) -> torch.Tensor:
    """Return the mean of finite values, everywhere; the median for exact types."""
    if tensor.numel() == 0 or tensor.dtype is torch.bool:
        return torch.zeros_like(tensor)
    if narrow(tensor):
        return narrowed(_level(tensor.float()), tensor.dtype)
    if tensor.is_floating_point() or tensor.is_complex():
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        total, count = tensor.sum(dtype=wide), tensor.numel()
        if not total.isfinite():  # checking every element takes three times as long
            finite = tensor.isfinite()
            total, count = torch.where(finite, tensor, 0).sum(dtype=wide), int(finite.sum())
        return torch.full_like(tensor, total.item() / max(count, 1))
    return torch.full_like(tensor, int(tensor.reshape(-1).median()))


_PROBES: dict[str, Probe] = {
    "zeros": _zeros,
    "one constant": _constant,
    "the answer to other inputs": _other_inputs,
    "the answer under other weights": _other_weights,
    "its input as the answer": _inputs,
}

__all__ = ["accepts", "degenerate", "health"]
