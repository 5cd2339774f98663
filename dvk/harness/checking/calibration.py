"""Calibration of tolerances from the reference's outputs: scales, its error, and the error of the next coarser format.

A calibrated answer is compared with float64. The truth is not used if random numbers are drawn (masks differ between dtypes), if the module
does not run in float64, or if it differs from the reference by more than the class admits at more than `FEW` elements: then the module
computes something else in float64, and rounding noise in the reference's operators gives its accuracy. Where the reference ran PyTorch's
fused functions of transformer encoders, which compute another function, its error is that against the same functions in float64; the truth
is the module by its definition as long as it is near, and a candidate may agree with either.

A followed answer is not compared: a candidate within τ of the truth is within τ plus the reference's error of the reference, so for another
draw of the same kind the reference's answer suffices and costs one call. The reference's error hardly varies between draws (its mean by
percents, its maximum less than twofold), hence the factors 1.5 and 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from dvk.harness.checking import compare
from dvk.harness.checking.case import num_bytes
from dvk.harness.checking.compare import ExpectedLeaf
from dvk.harness.checking.in_float64 import may_be_fused
from dvk.harness.checking.narrow_floats import narrow, steps
from dvk.harness.checking.other_algorithms import plain
from dvk.harness.checking.reference_runs import Answer, InputDraw, Reference
from dvk.harness.checking.sensitivity import FEW
from dvk.harness.checking.tolerance import FEW_ELEMENTS, UNKNOWN, Class, Errors, Sums
from dvk.harness.transport.memory_budget import TRUTH_BYTES
from dvk.tasks.trees import named_tensors

NOISE_SEED = 20_000
ONCE = 2.0
"""Typical error over that of one rounding, which a program has that rounds its result once and one operand of a product: 1.4. Sums in the
output's 16 bits have 2 from eight partial sums on."""
MOSTLY = 0.9
NEAR = Errors(1e-2, 0.1)
"""How far fused functions may be from what they approximate: GELU by tanh is off by up to 5e-4, several layers of it by more; padding that
is left at 0 is off by all."""


class Calibration:
    """Makes `ExpectedLeaf` leaves from a reference's answers.

    Args:
        reference: runs variations of a call.
        precision: the task's class.
        device: `cpu` or `cuda`.
        quantised: whether operands or outputs are codes; then the typical element is held to the accumulation that it declares.
        places: whether outputs of 8-bit integers are indices or classes.
    """

    def __init__(
        self,
        reference: Reference,
        precision: Class,
        device: str,
        quantised: bool = False,
        places: bool = False,
    ):
        self.reference, self.precision, self._quantised = reference, precision, quantised
        self._places = places
        self._room = TRUTH_BYTES[device] - num_bytes(
            [*reference.model.parameters(), *reference.model.buffers()]
        )

    def calibrated(
        self,
        draw: InputDraw,
        answer: Answer,
        lower: bool,
        like: list[ExpectedLeaf] | None = None,
        equal_terms: bool = False,
    ) -> list[ExpectedLeaf]:
        """Return expected leaves calibrated against float64.

        Args:
            draw: arguments of the call.
            answer: the reference's answer.
            lower: also measure the next coarser format.
            like: leaves of an earlier calibrated call; tolerances are never smaller than theirs.
            equal_terms: many input values are equal.
        """
        expected = self._outsides(answer)
        if not any(e.scale is not None for e in expected):
            return expected
        truths = _Truths(self, draw, answer)
        coarse = (
            self.reference.with_few_bits(
                draw, self.precision.lower_bits, self.precision.stores_lower
            )
            if lower
            else None
        )
        noisy: Answer | None = None
        for i, want in enumerate(expected):
            if want.scale is None:
                continue
            want.own, want.truth = truths.of(i, want)
            if want.truth is None:
                noisy = noisy or self.reference.with_noise(draw, NOISE_SEED)
                # Noise of up to one unit is on average twice what rounding leaves.
                noise = self.own(want, _leaf(noisy, i, want))
                want.own = Errors(noise.typical / 2, noise.worst)
            if (low := _leaf(coarse, i, want)) is not None:
                want.lower = _errors(low, want.same if want.truth is None else want.truth, want)
            want.once = self._quantised and _rounded_once(want)
            want.admitted = self._tolerance(want, _sums(draw, want, equal_terms))
            if like is not None:
                want.admitted = want.admitted.at_least(like[i].admitted)
            want.wide = want.admitted.typical < 1e-7
            if want.truth is not None and not want.wide:
                want.truth = _narrowed(want.truth)
        return expected

    def followed(
        self, draw: InputDraw, answer: Answer, like: list[ExpectedLeaf]
    ) -> list[ExpectedLeaf]:
        """Return expected leaves for another draw of the kind that `same_class_places` was calibrated on."""
        expected = self._outsides(answer)
        for want, known in zip(expected, like, strict=True):
            if want.scale is not None:
                own = known.own if known.own.typical == known.own.typical else known.admitted
                want.once = known.once
                admitted = self._tolerance(known, _sums(draw, want, False))
                want.admitted = Errors(
                    admitted.typical + 1.5 * own.typical, admitted.worst + 2 * own.worst
                )
                want.own, want.lower, want.wide = known.own, known.lower, known.wide
        return expected

    def _tolerance(self, want: ExpectedLeaf, sums: Sums) -> Errors:
        admitted = self.precision.tolerance(want.own, want.lower, sums)
        if not want.once or sums.elements < FEW_ELEMENTS:
            return admitted
        return Errors(min(admitted.typical, ONCE * want.own.typical), admitted.worst)

    def agreed(
        self, draw: InputDraw, answer: Answer, like: list[ExpectedLeaf], only_nan: bool
    ) -> list[ExpectedLeaf]:
        """Return expected leaves for non-finite values: elements on which variations of the reference disagree are not compared.

        Args:
            draw: arguments of the call.
            answer: the reference's answer.
            like: leaves of a calibrated call.
            only_nan: the inputs have no infinity and nothing near overflow.
        """
        expected = self.followed(draw, answer, like)
        for other in self._variations(draw, answer, only_nan):  # one at a time: each may be large
            for number, want in enumerate(expected):
                leaf = _leaf(other, number, want) if isinstance(want.same, torch.Tensor) else None
                if leaf is None or _any_index(want):
                    continue
                exact = want.scale is None
                off = steps(leaf) != steps(want.same) if exact else self._disagree(want, leaf)
                want.open = off if want.open is None else want.open | off
        for want in expected:
            if not isinstance(want.same, torch.Tensor):
                continue
            if _any_index(want):
                want.open = torch.ones_like(want.same, dtype=torch.bool)
                continue
            want.vague = not only_nan
            want.open = want.open if want.open is not None and bool(want.open.any()) else None
        return expected

    def _variations(
        self, draw: InputDraw, answer: Answer, only_nan: bool
    ) -> Iterator[Answer | None]:
        """Yield the reference's answers by other means to values that are not finite."""
        yield self.truth(draw, answer)
        yield self.reference.under(draw, plain)
        yield self.reference.with_noise(draw, NOISE_SEED)
        yield self.reference.spread(draw, "nonzero" if only_nan else "nowhere")[0]
        everywhere, chooses = self.reference.spread(draw, "everywhere")
        if not (only_nan and chooses):
            yield everywhere
        del everywhere
        if not only_nan:
            yield self.reference.overflowing_early(draw)

    def _disagree(self, want: ExpectedLeaf, leaf: torch.Tensor) -> torch.Tensor:
        one, other = compare.real(want.same), compare.real(leaf).to(compare.real(want.same).dtype)
        off = compare.ratios(want.same, leaf, replace(want, wide=True))[1].reshape(one.shape)
        return compare.kinds_differ(one, other) | (
            one.isfinite() & (off > self.precision.ceiling.worst)
        )

    def recheck_in_float64(
        self, draw: InputDraw, spec_text: str, expected: list[ExpectedLeaf]
    ) -> bool:
        """Calibrate followed leaves against float64 after all, as `calibrated` does; return whether any is now.

        The reference may have a far larger error on this draw than on the calibrated one: torch's softmax of 131,072 values on a CPU misses
        an outlier by 2e-4, and a candidate that sums in double would be rejected for being right.
        """
        truths = _Truths(self, draw, Answer([want.same for want in expected], spec_text, []))
        result = False
        for number, want in enumerate(expected):
            if want.scale is None or want.truth is not None:
                continue
            if (truth := truths.of(number, want)[1]) is not None:
                want.truth, result = truth if want.wide else _narrowed(truth), True
        return result

    def _outsides(self, answer: Answer) -> list[ExpectedLeaf]:
        result = [
            _outside(name, leaf) for name, leaf in zip(answer.names, answer.leaves, strict=True)
        ]
        for want in result:
            want.places = self._places
            if isinstance(want.same, float):
                want.admitted = self.precision.floor
        return result

    def truth(self, draw: InputDraw, answer: Answer, fused: bool = False) -> Answer | None:
        """Return the answer in float64; None without one, or if it has no room. `fused`: see `InFloat64`."""
        if (
            num_bytes([*answer.leaves, *[t for _, t in named_tensors((draw.args, draw.kwargs))]])
            > self._room
        ):
            return None
        outputs = self.reference.in_float64(draw, fused)
        return outputs if outputs is not None and outputs.spec_text == answer.spec_text else None

    def own(self, want: ExpectedLeaf, other: torch.Tensor | None) -> Errors:
        """Return the reference's error without elements on an edge; unknown if the two results are unrelated."""
        if other is None:
            return UNKNOWN
        ceiling = self.precision.ceiling
        errors = _errors(want.same, other, want)
        if errors.within(ceiling):
            return errors
        count, squares, worst = 0, 0.0, 0.0
        for _, _, error, _ in compare.sliced_ratios(want.same, other, want):
            error = error.masked_fill_(error > ceiling.worst, -1.0)
            bulk = error >= 0
            count += int(bulk.sum())
            squares += float(error.masked_fill_(~bulk, 0.0).square_().sum(dtype=torch.float64))
            worst = max(worst, float(error.max().sqrt()))
        total = compare.real(want.same).numel()
        if total - count > max(8, FEW * total) or not count:
            return UNKNOWN
        return Errors((squares / count) ** 0.5, worst)


class _Truths:
    """One answer in float64, by definition, and by PyTorch's fused functions where the reference is far from that.

    Args:
        answer: the reference's, in its own type.
    """

    def __init__(self, calibration: Calibration, draw: InputDraw, answer: Answer):
        self._calibration, self._draw, self._answer = calibration, draw, answer
        self._plain = calibration.truth(draw, answer)

    @cached_property
    def _fused(self) -> Answer | None:
        if not may_be_fused(self._calibration.reference.model):
            return None
        return self._calibration.truth(self._draw, self._answer, fused=True)

    def of(self, number: int, want: ExpectedLeaf) -> tuple[Errors, torch.Tensor | None]:
        """Return the reference's error of one output, and its truth; unknown and None if float64 computes something else."""
        own, truth = self._held(self._plain, number, want)
        if truth is not None and own.within(self._calibration.precision.ceiling):
            return own, truth
        other, fused = self._held(self._fused, number, want)
        if fused is None:
            return own, truth
        defined = _wide(self._plain, number, want)
        near = defined is not None and _errors(want.same, defined, want).within(NEAR)
        return other, defined if near else fused

    def _held(
        self, answer: Answer | None, number: int, want: ExpectedLeaf
    ) -> tuple[Errors, torch.Tensor | None]:
        wide = _wide(answer, number, want)
        own = self._calibration.own(want, wide)
        return own, wide if own.typical == own.typical else None


def _rounded_once(want: ExpectedLeaf) -> bool:
    """Whether nearly every element is the truth in the output's 16 bits."""
    if want.truth is None or want.same.dtype not in (torch.float16, torch.bfloat16):
        return False
    equal = want.truth.to(want.same.dtype) == want.same
    return int(equal.sum()) >= MOSTLY * equal.numel()


def _outside(name: str, leaf: Any) -> ExpectedLeaf:
    if not isinstance(leaf, torch.Tensor):
        return ExpectedLeaf(name, leaf)
    if narrow(leaf) or not (leaf.is_floating_point() or leaf.is_complex()):
        return ExpectedLeaf(name, leaf)
    scale, rms, finite = compare.scales(leaf)
    return ExpectedLeaf(name, leaf, None, scale, rms, finite=finite)


def _sums(draw: InputDraw, want: ExpectedLeaf, equal_terms: bool) -> Sums:
    read = [
        t for _, t in named_tensors((draw.args, draw.kwargs)) if t.is_floating_point() and t.numel()
    ]
    elements = want.same.numel()
    sample = max((t.numel() / t.shape[0] if t.dim() > 1 else t.numel() for t in read), default=1)
    return Sums(
        max(sample, sum(t.numel() for t in read) / max(1, elements), 1.0), elements, equal_terms
    )


def _any_index(want: ExpectedLeaf) -> bool:
    """Whether it holds indices, which may name any of several NaN."""
    return want.scale is None and want.same.dtype is not torch.bool and not narrow(want.same)


def _errors(got: torch.Tensor, target: torch.Tensor, want: ExpectedLeaf) -> Errors:
    return compare.errors(got, target, replace(want, wide=True))


def _leaf(answer: Answer | None, number: int, want: ExpectedLeaf) -> torch.Tensor | None:
    if answer is None or number >= len(answer.leaves):
        return None
    leaf = answer.leaves[number]
    return leaf if isinstance(leaf, torch.Tensor) and leaf.shape == want.same.shape else None


def _wide(answer: Answer | None, number: int, want: ExpectedLeaf) -> torch.Tensor | None:
    leaf = _leaf(answer, number, want)
    return leaf if leaf is not None and leaf.dtype in (torch.float64, torch.complex128) else None


def _narrowed(wide: torch.Tensor) -> torch.Tensor:
    return wide.to(torch.complex64 if wide.is_complex() else torch.float32)
