"""Agreement of a candidate's answer with a case: outputs, then the buffers it left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from dvk.harness.checking import compare, normwise
from dvk.harness.checking.case import Case, Comparison
from dvk.harness.checking.compare import ExpectedLeaf, same_bits
from dvk.harness.checking.input_families import TIES
from dvk.harness.checking.reference_runs import Answer, InputDraw
from dvk.harness.checking.sensitivity import MOST_RUNS, Sensitivity, excused, on_edges
from dvk.harness.checking.tolerance import NONE, UNKNOWN, Class, Errors
from dvk.harness.transport.calls import Buffers


def outputs_agree(
    case: Case,
    leaves: list[Any],
    spec_text: str,
    precision: Class,
    sensitive: Callable[[Case], list[Sensitivity]],
    disturbed: Callable[[InputDraw, int, bool], Answer | None],
    exact_strides: bool = False,
) -> Comparison:
    """Compare the structure of a result, then every element.

    Args:
        case: the reference's results on the same inputs.
        leaves: the candidate's leaves, by `calls.describe`.
        spec_text: the text of their nesting.
        precision: the task's class.
        sensitive: returns how the case's outputs move under rounding noise; called only if an element is off, which is excused
        if any correct program may be off there.
        exact_strides: see `compare.structure`.
        disturbed: returns the reference's answer under noise, by draw, seed and whether it is strong.
    """
    tolerance = case.tolerance
    difference = compare.structure(
        leaves, spec_text, case.expected, case.spec_text, exact_strides=exact_strides
    )
    if difference is not None:
        return Comparison(f"{difference.text} ({case.text})", UNKNOWN, tolerance)
    worst, notes = NONE, list(compare.notes(leaves, case.expected))
    for number, (leaf, want) in enumerate(zip(leaves, case.expected, strict=True)):
        if not isinstance(leaf, torch.Tensor):
            continue
        errors, difference = compare.values(leaf, want)
        if difference is not None:
            left = None
            if difference.error == difference.error:
                sensitivity = sensitive(case)[number]
                left = excused(leaf, want, sensitivity, precision, case.key.family in TIES)
                if left is None:
                    left = on_edges(
                        leaf, want, sensitivity, precision, _strongly(case, number, disturbed)
                    )
                if left is None and (left := normwise.spread(leaf, want, precision)) is not None:
                    notes.append(normwise.note(want.name))
            if left is None:
                return Comparison(
                    f"{difference.text} ({case.text})",
                    Errors(errors.typical, difference.error),
                    tolerance,
                )
            errors, tolerance = left, max(tolerance, left.worst)
        if errors.worst > worst.worst:
            worst = errors
    return Comparison(None, worst, tolerance, tuple(notes))


def _strongly(
    case: Case, number: int, disturbed: Callable[[InputDraw, int, bool], Answer | None]
) -> Iterator[torch.Tensor]:
    """Yield an output under strong noise, one run per item."""
    for run in range(MOST_RUNS):
        answer = disturbed(case.draw, 20_000 + run, True)
        if answer is not None and answer.spec_text == case.spec_text:
            yield answer.leaves[number]


def buffers_agree(case: Case, got: Buffers, before: Buffers, precision: Class) -> Comparison:
    """Compare running statistics, which a module in train mode computes, too.

    Args:
        case: includes the buffers that the reference left.
        got: those that the candidate left; buffers that the reference lacks are ignored.
        before: the reference's buffers before the call.
        precision: the task's class.
    """
    ceiling = precision.ceiling
    for name, want in case.buffers.items():
        mine = got.get(name)
        if mine is None:
            if not same_bits(want, before[name]):
                return Comparison(
                    f"it does not update the buffer `{name}` as the reference does ({case.text})",
                    UNKNOWN,
                    ceiling.worst,
                )
            continue
        if same_bits(mine, want):
            continue
        if mine.shape != want.shape or mine.dtype != want.dtype or not want.is_floating_point():
            return Comparison(
                f"the buffer `{name}` differs after the call ({case.text})", UNKNOWN, ceiling.worst
            )
        scale, rms, finite = compare.scales(want)
        errors, difference = compare.values(
            mine, ExpectedLeaf(name, want, None, scale, rms, ceiling, finite=finite)
        )
        if difference is not None:
            text = f"the buffer `{name}` differs after the call by {errors.worst:.1e} of scale ({case.text})"
            return Comparison(text, errors, ceiling.worst)
    return Comparison(None)
