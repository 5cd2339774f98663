"""Input sets beyond other floating values: other arguments, non-finite values, the module's other mode.

arguments, edges      see `arguments`
nan, infinite, huge   a few elements, at times a whole row, of one input or several; compared is what every variation of the
                      reference agrees on: where one in float64, in other algorithms or with other products (`nonfinite_spread`) has a
                      NaN, an infinity or another number, a candidate may have anything
the other mode        train and eval mode swapped, if that makes a difference
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from dvk.harness.checking.calibration import Calibration
from dvk.harness.checking.case import Case
from dvk.harness.checking.case_keys import InputSetKey
from dvk.harness.checking.compare import same_bits
from dvk.harness.checking.input_draws import Drawing
from dvk.harness.checking.input_families import NATIVE, NONFINITE
from dvk.harness.checking.reference_runs import Answer, InputDraw, Reference

SATURATED = 0.9
MANY_DECISIONS = 3
"""Most values of tensors that a call reads in Python; beyond this a loop may depend on them, which NaN might make endless."""


class UnfitInputs(Exception):
    """An input set on which no candidate should be judged; the message gives the reason."""


class Further:
    """Makes these input sets for one task.

    Args:
        reference: the reference's runs.
        drawing: the source of inputs.
        calibration: makes the expected leaves.
        base: the calibrated native case, with or without gradients.
        fitting: returns the case of a key and a given draw, if it is inside the reference's domain.
    """

    def __init__(
        self,
        reference: Reference,
        drawing: Drawing,
        calibration: Calibration,
        base: Callable[[bool], Case],
        fitting: Callable[[InputSetKey, InputDraw], Case],
    ):
        self.reference, self.drawing, self.calibration, self.base, self.fitting = (
            reference,
            drawing,
            calibration,
            base,
            fitting,
        )

    def argued(self, key: InputSetKey) -> Case:
        """Return a case with other arguments.

        Raises:
            UnfitInputs: all arguments are floating data, or the reference accepts no others.
        """
        arguments = self.drawing.arguments(lambda draw: self._bears(draw))
        if not arguments.varied:
            raise UnfitInputs("no argument but floating data that may be another")
        native = self.drawing.drawn(replace(key, family=NATIVE))[0]
        reason = "the reference accepts no other arguments"
        for draw, told in arguments.draws(native, key.family, key.seed):
            if self.reference.try_inputs(draw) is None:
                continue
            try:
                return self.fitting(replace(key, told=told), draw)
            except UnfitInputs as why:
                reason = str(why)
        raise UnfitInputs(reason)

    def nonfinite(self, key: InputSetKey) -> Case:
        """Return a case with values that are not finite, or close to overflow.

        Raises:
            UnfitInputs: no element can be compared.
        """
        if key.backward:
            raise UnfitInputs("right programs differ in gradients at values that are not finite")
        draw, changed = self.drawing.drawn(key)
        if not changed:
            raise UnfitInputs("no floating input whose values could be changed")
        domain = self.reference.domain(draw)
        if domain.demanding or domain.decisions >= MANY_DECISIONS:
            raise UnfitInputs("the reference takes probabilities or indices, or decides by values")
        answer, base = self.reference.try_inputs(draw, False), self.base(False)
        if answer is None or answer.spec_text != base.spec_text:
            raise UnfitInputs("the reference raises there, or returns another structure")
        expected = self.calibration.agreed(
            draw, answer, base.expected, only_nan=key.family == "nan"
        )
        if all(
            e.open is not None and bool(e.open.all())
            for e in expected
            if isinstance(e.same, torch.Tensor)
        ):
            raise UnfitInputs("the reference's own variations agree on no element")
        return Case(
            key, draw.seed, draw.args, draw.kwargs, expected, answer.spec_text, {}, draw.loose
        )

    def other_mode(self, key: InputSetKey) -> Case:
        """Return a case in the module's other mode.

        Raises:
            UnfitInputs: it makes no difference, or the reference does not run in it.
        """
        draw = self.drawing.drawn(key)[0]
        usual, answer = (
            self.reference.try_inputs(replace(draw, other_mode=False), False),
            self.reference.try_inputs(draw, False),
        )
        if usual is None or answer is None or _same(usual, answer):
            raise UnfitInputs("no other mode, or none that makes a difference")
        expected = self.calibration.calibrated(draw, answer, lower=False)
        return Case.of(key, draw, answer, expected)

    def _bears(self, draw: InputDraw) -> bool:
        answer, base = self.reference.try_inputs(draw), self.base(False)
        if answer is None or answer.spec_text != base.spec_text:
            return False
        pairs = zip(answer.leaves, base.expected, strict=True)
        return all(
            not _saturated(leaf) if e.scale is None else not e.finite or bool(leaf.isfinite().all())
            for leaf, e in pairs
        )


def _saturated(leaf: Any) -> bool:
    """Whether codes are nearly all at an end of their range: a scale of zero is hidden so."""
    if not isinstance(leaf, torch.Tensor) or leaf.dtype not in (torch.int8, torch.uint8):
        return False
    info = torch.iinfo(leaf.dtype)
    ends = (leaf == info.min) | (leaf == info.max)
    return leaf.numel() > 1 and int(ends.sum()) > SATURATED * leaf.numel()


def _same(one: Answer, other: Answer) -> bool:
    if one.spec_text != other.spec_text or one.buffers.keys() != other.buffers.keys():
        return False
    pairs = [
        *zip(one.leaves, other.leaves, strict=True),
        *[(one.buffers[name], other.buffers[name]) for name in one.buffers],
    ]
    return all(
        same_bits(a, b)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        else repr(a) == repr(b)
        for a, b in pairs
    )


__all__ = ["NONFINITE", "Further", "UnfitInputs"]
