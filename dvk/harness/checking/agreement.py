"""Agreement of a candidate's answer with a case: outputs, then the buffers it left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dvk.harness.checking import compare, envelope, normwise
from dvk.harness.checking.case import Case, Comparison
from dvk.harness.checking.compare import same_bits
from dvk.harness.checking.envelope import Envelopes
from dvk.harness.checking.input_families import TIES
from dvk.harness.checking.narrow_floats import narrow
from dvk.harness.checking.reference_runs import Answer, InputDraw
from dvk.harness.checking.sensitivity import MOST_RUNS, Sensitivity, coded, excused, on_edges
from dvk.harness.checking.tolerance import NONE, UNKNOWN, Class, Errors
from dvk.harness.transport.calls import Buffers

Disturbed = Callable[[InputDraw, int, bool, bool, bool], Answer | None]
"""`Reference.with_noise`."""


def outputs_agree(
    case: Case,
    leaves: list[Any],
    spec_text: str,
    precision: Class,
    sensitive: Callable[[Case], list[Sensitivity]],
    disturbed: Disturbed,
    envelopes: Envelopes,
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
        envelopes: how the case's outputs move under the reference's own variations.
        exact_strides: see `compare.structure`.
        disturbed: returns the reference's answer under noise: `Reference.with_noise`.
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
            left, noted = None, ""
            if difference.error == difference.error:
                excuse = _Excuse(case, number, precision, envelopes)
                left, noted = excuse.by_envelope(leaf, errors, known=True)
                if left is None:
                    left, noted = excuse.by_noise(leaf, sensitive, disturbed)
                if left is None:
                    left, noted = excuse.by_envelope(leaf, errors)
            notes += [noted] if noted else []
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


@dataclass(frozen=True)
class _Excuse:
    """Reasons for which an output that is off may be right."""

    case: Case
    number: int
    """The output's position among the case's leaves."""
    precision: Class
    envelopes: Envelopes

    def by_envelope(
        self, leaf: torch.Tensor, errors: Errors, known: bool = False
    ) -> tuple[Errors | None, str]:
        """Return the errors if the reference's own variations explain them, and the verdict's note; `known`: if they are measured."""
        want = self.case.expected[self.number]
        if want.scale is None or envelope.hopeless(errors, want):
            return None, ""
        return self.envelopes.explain(leaf, want, self.case, known)

    def by_noise(
        self,
        leaf: torch.Tensor,
        sensitive: Callable[[Case], list[Sensitivity]],
        disturbed: Disturbed,
    ) -> tuple[Errors | None, str]:
        """Return the errors if rounding noise or an algorithm with fewer multiplications explains them, and the verdict's note."""
        case, want, precision = self.case, self.case.expected[self.number], self.precision
        sensitivity = sensitive(case)[self.number]
        left = excused(leaf, want, sensitivity, precision, case.key.family in TIES)
        if left is None:
            strongly = _strongly(case, self.number, disturbed)
            left = on_edges(leaf, want, sensitivity, precision, strongly)
        if left is None and (left := normwise.spread(leaf, want, precision)) is not None:
            return left, normwise.note(want.name)
        return left, ""


def _strongly(case: Case, number: int, disturbed: Disturbed) -> Iterator[torch.Tensor]:
    """Yield an output under strong noise, one run per item."""
    codes = coded(case.expected[number])
    for run in range(MOST_RUNS):
        answer = disturbed(case.draw, 20_000 + run, True, True, codes and run % 2 == 0)
        if answer is not None and answer.spec_text == case.spec_text:
            yield answer.leaves[number]


def buffers_agree(
    case: Case,
    got: Buffers,
    before: Buffers,
    precision: Class,
    envelopes: Envelopes,
    only: Collection[str] | None = None,
) -> Comparison:
    """Compare running statistics, which a module in train mode computes, too.

    Args:
        case: includes the buffers that the reference left.
        got: those that the candidate left; buffers that the reference lacks are ignored.
        before: the reference's buffers before the call.
        precision: the task's class.
        envelopes: how they move under the reference's own variations.
        only: names of those that are compared; None: all.
    """
    ceiling, notes = precision.ceiling, []
    for name, want in case.buffers.items():
        if only is not None and name not in only:
            continue
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
        exact = narrow(want) or not want.is_floating_point()
        if mine.shape != want.shape or mine.dtype != want.dtype or exact:
            return Comparison(
                f"the buffer `{name}` differs after the call ({case.text})", UNKNOWN, ceiling.worst
            )
        (leaf,) = envelope.buffer_leaves({name: want}, precision)
        errors, difference = compare.values(mine, leaf)
        if difference is not None:
            left, told = None, ""
            for known in (True, False) if difference.error == difference.error else ():
                if left is None:
                    left, told = envelopes.explain(mine, leaf, case, known)
            if left is not None:
                notes.append(told)
                continue
            text = f"the buffer `{name}` differs after the call by {errors.worst:.1e} of scale ({case.text})"
            return Comparison(text, errors, ceiling.worst)
    return Comparison(None, notes=tuple(notes))


def furthest(outputs: Sequence[Any], expected: Sequence[compare.ExpectedLeaf]) -> float | None:
    """Return the largest absolute error of right outputs against the reference's own; None without a floating output."""
    worst = [
        float(move.max())
        for got, want in zip(outputs, expected, strict=True)
        if isinstance(got, torch.Tensor) and want.scale is not None
        for _, move, _, _ in compare.sliced_ratios(got, want.same, want)
    ]
    return max(worst, default=None)
