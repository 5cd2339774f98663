"""Envelope: how far the reference itself moves under other algorithms, layouts and orders of its own precision class.

An untrained network with train-mode batch norms amplifies rounding, layer after layer; its float64 run, its channels-last run and its run
by other algorithms are as far from each other as any honest program is from them, and farther than the class's ceiling admits. So an output
or a running statistic that is off is also held against the reference's own variations (`other_algorithms`, rounding noise, float64),
measured only after a candidate was off.

Where the typical element moves by E under them and by L in the next coarser format, `FACTOR`·E is admitted, or √(E·L) if that is less, as
long as the two are `APART`; a kernel in the coarser format is then still refused. Where they are not, the verdict says so (`note`). That
applies if the noise is general (at least `BROAD` of the elements move) and amplified (`Class.amplified`). If it is not, the typical
element keeps its tolerance, and a few elements may be off by as much as a few are under the variations, up to the class's cap: among
millions some are at the tail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from dvk.harness.checking import compare
from dvk.harness.checking.calibration import NOISE_SEED
from dvk.harness.checking.case import Case
from dvk.harness.checking.case_keys import InputSetKey
from dvk.harness.checking.compare import ExpectedLeaf
from dvk.harness.checking.narrow_floats import narrow
from dvk.harness.checking.other_algorithms import other_algorithms
from dvk.harness.checking.reference_runs import Answer, Reference
from dvk.harness.checking.sensitivity import NUM_NOISES
from dvk.harness.checking.tolerance import (
    COARSE_BITS,
    FEW_ELEMENTS,
    MOST_BY_LUCK,
    NONE,
    UNKNOWN,
    Class,
    Errors,
)
from dvk.harness.transport.calls import Buffers
from dvk.harness.transport.memory_budget import TRUTH_BYTES

FACTOR = 4.0
"""An honest program's typical error over the largest of the reference's variations."""
FACTOR_FEW = 8.0
"""The same among few elements, where it varies by chance, and for the worst element."""
APART = 4.0
BROAD, MOVES = 1 / 16, 1 / 8
"""Share of elements that move by at least a share of the admitted typical error."""
TAIL, TAIL_SHARE = 4, 1e-5
"""Elements at the tail: a number, and a share of all."""
BUFFER = "buffer "
"""Prefix of the name of a buffer that a call leaves: few values, which rounding moves or does not."""
HOPELESS = 256.0
"""Errors this many times the reference's own are measured against nothing else."""
UNRELATED = 8.0
"""A float64 run farther away than this times the other variations computes something else."""


@dataclass(frozen=True)
class Envelope:
    """Movement of one output or buffer over all variations."""

    moves: Errors = NONE
    """The largest of the typical and of the worst errors."""
    lower: Errors = UNKNOWN
    """The error of the next coarser format."""
    share: float = 0.0
    """Share of elements that move noticeably."""
    beyond: int = 0
    """Elements beyond the admitted worst error, in one run."""

    @property
    def separates(self) -> bool:
        """Whether the next coarser format is far enough from the reference's own noise."""
        return self.lower.typical >= APART * self.moves.typical

    def admitted(self, elements: int) -> Errors:
        """Return the admitted errors of an output of so many elements, if the noise is general."""
        few = FACTOR_FEW if elements < FEW_ELEMENTS else FACTOR
        typical = few * self.moves.typical
        if self.separates:
            typical = min(typical, math.sqrt(self.moves.typical * self.lower.typical))
        return Errors(typical, FACTOR_FEW * self.moves.worst)


class Envelopes:
    """The envelopes of one task, measured when first asked for.

    Args:
        reference: runs the variations.
        precision: the task's class.
        device: `cpu` or `cuda`.
    """

    def __init__(self, reference: Reference, precision: Class, device: str):
        self._reference, self._precision, self._device = reference, precision, device
        self._measured_on: dict[InputSetKey, dict[str, Envelope]] = {}
        self._widest: dict[tuple[Any, ...], dict[str, Envelope]] = {}

    def of(self, case: Case, known: bool = False) -> dict[str, Envelope] | None:
        """Return the envelopes of a case's outputs and buffers by name.

        Args:
            case: the reference's results.
            known: return the widest measured on draws of the same kind, None without one. A network amplifies rounding more on one draw
            than on another, so what that does not explain is measured on the draw itself.
        """
        key = case.key
        kind = (key.place, key.family, key.weights, key.backward, key.other_mode)
        if known:
            return self._widest.get(kind)
        if key not in self._measured_on:
            self._measured_on[key] = measured = self._measured(case)
            before = self._widest.get(kind, measured)
            self._widest[kind] = {
                name: max(one, before[name], key=lambda e: e.moves.typical)
                for name, one in measured.items()
            }
        return self._measured_on[key]

    def explain(
        self, got: torch.Tensor, want: ExpectedLeaf, case: Case, known: bool
    ) -> tuple[Errors | None, str]:
        """Return the errors of an output or buffer that is off if the reference's own variations explain them, and the verdict's note."""
        envelope = (self.of(case, known) or {}).get(want.name)
        left = None if envelope is None else within(got, want, envelope, self._precision)
        return left, "" if envelope is None or left is None else note(want.name, envelope)

    def _measured(self, case: Case) -> dict[str, Envelope]:
        wanted = {
            leaf.name: leaf
            for leaf in [*case.expected, *buffer_leaves(case.buffers, self._precision)]
            if leaf.scale is not None
        }
        envelopes = dict.fromkeys(wanted, Envelope())
        if not wanted:
            return envelopes
        reference, draw = self._reference, case.draw
        for number in range(NUM_NOISES):
            # Programs are given the same inputs, and noise of up to one unit is on average twice what rounding leaves.
            noisy = reference.with_noise(draw, NOISE_SEED + number, inputs=False)
            self._widen(envelopes, wanted, noisy, share=0.5)
        for contexts in other_algorithms(self._device).values():
            self._widen(envelopes, wanted, reference.under(draw, contexts))
        if case.num_bytes <= TRUTH_BYTES[self._device]:
            self._widen(envelopes, wanted, reference.in_float64(draw), truth=True)
        bits, stores = self._precision.lower_bits, self._precision.stores_lower
        coarse = _by_name(reference.with_few_bits(draw, bits, stores))
        for name, want in wanted.items():
            if (run := coarse.get(name)) is not None and run.shape == want.same.shape:
                envelopes[name] = replace(
                    envelopes[name], lower=compare.errors(run, want.same, want)
                )
        return envelopes

    def _widen(
        self,
        found: dict[str, Envelope],
        wanted: dict[str, ExpectedLeaf],
        answer: Answer | None,
        truth: bool = False,
        share: float = 1.0,
    ) -> None:
        for name, run in _by_name(answer).items():
            want = wanted.get(name)
            if want is not None and run.shape == want.same.shape:
                found[name] = _widened(found[name], want, run, truth, share)


def buffer_leaves(buffers: Buffers, precision: Class) -> list[ExpectedLeaf]:
    """Return expected leaves for the floating buffers that a call leaves, which are admitted the class's ceiling."""
    result = []
    for name, want in buffers.items():
        if want.is_floating_point() and not narrow(want):
            scale, rms, finite = compare.scales(want)
            result.append(
                ExpectedLeaf(
                    BUFFER + name, want, None, scale, rms, precision.ceiling, finite=finite
                )
            )
    return result


def _by_name(answer: Answer | None) -> dict[str, torch.Tensor]:
    if answer is None:
        return {}
    named = [*zip(answer.names, answer.leaves, strict=True)]
    named += [(BUFFER + name, value) for name, value in answer.buffers.items()]
    return {name: value for name, value in named if isinstance(value, torch.Tensor)}


def _widened(
    before: Envelope, want: ExpectedLeaf, run: torch.Tensor, truth: bool, part: float
) -> Envelope:
    errors = compare.errors(run, want.same, want)
    errors = Errors(part * errors.typical, part * errors.worst)
    if errors.typical != errors.typical:
        return before
    if truth and not errors.typical <= UNRELATED * before.moves.typical:
        return before
    levels = (MOVES * want.admitted.typical, want.admitted.worst)
    moved, far = compare.count_beyond(run, want.same, want, levels)
    return replace(
        before,
        moves=before.moves.at_least(errors),
        share=max(before.share, moved / max(1, run.numel())),
        beyond=max(before.beyond, far),
    )


def within(
    got: torch.Tensor, want: ExpectedLeaf, envelope: Envelope, precision: Class
) -> Errors | None:
    """Return the errors of `got` if the reference's own variations explain them; None if they do not."""
    if want.scale is None or want.once:
        return None
    general = envelope.share >= BROAD or want.name.startswith(BUFFER)
    general &= envelope.moves.typical >= precision.amplified * want.admitted.typical
    for target in compare.targets(want):
        errors = compare.errors(got, target, want)
        if general and errors.within(envelope.admitted(got.numel()).at_least(want.admitted)):
            return errors
        if errors.typical <= want.admitted.typical and _at_the_tail(
            errors, got, target, want, envelope, precision
        ):
            return errors
    return None


def hopeless(found: Errors, want: ExpectedLeaf) -> bool:
    """Whether the error is so far beyond the reference's own that measuring it in other ways would change nothing."""
    known = max(want.own.typical, want.admitted.typical)
    return want.own.typical == want.own.typical and not found.typical <= HOPELESS * known


def note(name: str, envelope: Envelope) -> str:
    """Return the verdict's note on what the envelope explains: the same text for every draw, and for all running statistics."""
    what = "a running statistic" if name.startswith(BUFFER) else f"`{name}`"
    text = f"{what} amplifies rounding: the reference itself moves as far under other algorithms and orders of sums"
    if envelope.lower.typical == envelope.lower.typical and not envelope.separates:
        text += "; a kernel in the next coarser format is not told apart there"
    return text


def _at_the_tail(
    found: Errors,
    got: torch.Tensor,
    target: torch.Tensor,
    want: ExpectedLeaf,
    envelope: Envelope,
    precision: Class,
) -> bool:
    most = MOST_BY_LUCK if precision.lower_bits <= COARSE_BITS else precision.cap
    few = max(TAIL, int(TAIL_SHARE * got.numel()))
    if envelope.beyond > few or not found.worst <= min(TAIL * envelope.moves.worst, most):
        return False
    return compare.count_beyond(got, target, want, (want.admitted.worst,))[0] <= few
