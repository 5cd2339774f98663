"""The input sets of one task, with the reference's results and the comparison.

Referee side. A `Case` is made on first use, once per task, and kept if there is room (`memory_budget`). Both arms start from the same
module state and the same random generators, so running statistics are part of the result and dropout is compared mask by mask. The first
native case and every family are compared with float64; further native draws, other shapes and the timed calls follow the first
(`calibration`).

A family looks for wrong arithmetic and must not reject a kernel on inputs that no user has. It is left out, with the reason in `skipped`,
if the reference raises, leaves its domain, is itself worse than its class, or jumps at many elements; before that it is tried with
non-negative inputs unchanged, and with the weights as constructed.

Honest programs rejected: 0 of 191 that the composer writes for the shipped tasks, 0 of 350 variations (float64, other summation order,
quick exponentials, rounding noise) of 118 modules of all kinds. `Sums` and `sensitivity` cover earlier false rejections: single
accumulators over equal terms, the norm of constant rows, outputs that cancel to nothing.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from dvk.errors import TaskError
from dvk.harness.checking import health, sensitivity
from dvk.harness.checking.agreement import buffers_agree, outputs_agree
from dvk.harness.checking.calibration import Calibration
from dvk.harness.checking.case import Case, Comparison, num_bytes
from dvk.harness.checking.case_keys import InputSetKey
from dvk.harness.checking.compare import ExpectedLeaf
from dvk.harness.checking.envelope import Envelopes
from dvk.harness.checking.further_cases import Further, UnfitInputs
from dvk.harness.checking.input_draws import Drawing, operands_of, quantises
from dvk.harness.checking.input_families import (
    ARGUED,
    NATIVE,
    NONFINITE,
    QUANTISED,
    STRAYS,
    TIES,
    zero_mean_already,
)
from dvk.harness.checking.reference_runs import InputDraw, Reference
from dvk.harness.checking.rounding_noise import TF32_EPS
from dvk.harness.checking.sensitivity import Sensitivity
from dvk.harness.checking.tolerance import Class, class_of
from dvk.harness.checking.weight_sets import INTEGERS, WeightSets
from dvk.harness.checking.written_inputs import WrittenInputs
from dvk.harness.seeds import derived
from dvk.harness.transport.calls import Buffers, NotDifferentiable
from dvk.harness.transport.memory_budget import budgets, release_cached
from dvk.tasks.build import BuiltTask


class Cases:
    """The input sets of one task.

    Args:
        built: the reference; its weights and buffers are changed here.
        keys: the planned input sets.
        seed: secret seed of weight sets and timed draws.
        room: bytes for kept cases and for draws (`memory_budget`).
        exact_strides: see `compare.structure`.
    """

    def __init__(
        self,
        built: BuiltTask,
        keys: Sequence[InputSetKey],
        seed: int,
        room: tuple[int, int] | None = None,
        exact_strides: bool = False,
    ):
        task = built.task
        self.built, self._exact_strides = built, exact_strides
        self.keys = list(keys)
        self.skipped: dict[str, str] = {}
        weights = [*built.model.parameters(), *built.model.buffers()]
        self.weight_bytes = num_bytes(weights)
        dtypes = {str(t.dtype).removeprefix("torch.") for t in weights} | {
            s.dtype for s in (*task.inputs, *task.outputs)
        }
        self.precision: Class = class_of(task.precision, dtypes)
        operands = operands_of(built)
        self.sets = WeightSets(built.model, seed, operands.weights)
        self.written = WrittenInputs(task, lambda: built.inputs(0))
        twin = not task.stochastic and task.precision != "exact"
        product_eps = TF32_EPS if task.precision == "tf32" else 0.0
        codes = quantises(built)
        self._quantised = quantised = bool(operands) or codes
        self.reference = Reference(
            built.model, self.sets, twin, self.written, product_eps, quantised
        )
        self._envelopes = Envelopes(self.reference, self.precision, task.device)
        kinds = (self.precision, task.device, quantised, not codes)
        self._calibration = Calibration(self.reference, *kinds)
        self._seed = seed
        self._backward = bool(self.keys) and self.keys[0].backward
        self.drawing = Drawing(built, self.reference, seed, operands)
        self._further = Further(
            self.reference, self.drawing, self._calibration, self._base, self._fitting
        )
        self._kept: dict[InputSetKey, Case | None] = {}
        self._bases: dict[bool, Case] = {}
        self._best: dict[bool, Case] = {}
        self._lurking: tuple[list[ExpectedLeaf], bool] | None = None
        """Calibration of strays, and whether non-negative values stayed so; None without strays."""
        self._vetted: set[int] = {0, INTEGERS}
        self._room, self._stock_room = room or budgets(task.device, 1)
        self._stock: dict[int, Case] = {}

    # ------------------------------------------------------------ input sets

    def get(self, key: InputSetKey) -> Case | None:
        """Return the case of a key, cached or drawn again; None if it is left out, see `skipped`.

        Raises:
            TaskError: the inputs cannot be drawn, or gradients are requested of a reference that has none.
        """
        if key in self._kept:
            return self._kept[key]
        try:
            case = self._made(key)
        except UnfitInputs as reason:
            self.skipped.setdefault(key.kind, str(reason))
            self._kept[key] = None
            return None
        self._keep(key, case)
        release_cached()  # a case of another size could not use these blocks
        return case

    def state(self, weights: int) -> dict[str, Any]:
        """Return the state_dict of a weight set, or set 0's if the reference does not work with it."""
        self._vet_weights(weights)
        return self.sets.state(weights)

    def needed(self, names: Sequence[str]) -> list[str]:
        """Return the weights among `names` that the reference's answer depends on, tested together: all that change, or none."""
        changing = [name for name in names if name in self.sets.names]
        self._vet_weights(1)
        if not changing or not self.sets.effective(1):
            return []
        case, others = self.fresh(0), self.sets.state(1)
        answer = self.reference.run_with(
            case.draw, {**self.sets.state(0), **{name: others[name] for name in changing}}
        )
        if answer is None or answer.spec_text != case.spec_text:
            return []
        return [] if health.accepts(case, answer.leaves) else changing

    def use(self, weights: int) -> None:
        """Load a weight set into the reference."""
        self._vet_weights(weights)
        self.reference.use(weights)

    def initial(self, weights: int) -> Buffers:
        """Return all buffers of the reference before a call under a weight set."""
        return self.reference.initial(weights)

    def fresh(self, number: int) -> Case:
        """Return the draw of the timed call `number`, under the weights as constructed; equal numbers, equal draws.

        It is native, and about every second one has strays, except number 0: a sample of the inputs must reveal neither whether the call is
        timed nor whether a short cut suffices.
        """
        if number in self._stock:
            return self._stock[number]
        seed = derived(self._seed, "timed", number)
        key = InputSetKey(NATIVE, NATIVE, 0, seed, backward=self.built.task.train)
        case = (
            self._strayed(key) if number and random.Random(key.seed).random() < 0.5 else None
        ) or self._followed(key)
        if case.num_bytes <= self._stock_room:
            self._stock_room -= case.num_bytes
            self._stock[number] = case
        return case

    def stock(self, count: int) -> int:
        """Make the first `count` timed draws; return how many of them stay in memory. The others are drawn again on each use."""
        for number in range(count):
            self.fresh(number)
            if number not in self._stock:
                break
        return len(self._stock)

    @property
    def separation(self) -> float:
        """Return the error of a kernel in the next coarser format over the admitted error, on the most telling inputs made so far; above 1
        the precision class is enforced."""
        return self._best[self._backward].separation if self._backward in self._best else 0.0

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """Return how the problem is degenerate (`health`)."""
        return health.health(self)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the findings, with those that follow from them and from the inputs made so far."""
        result = list(self.findings)
        if health.degenerate(result):
            result.append(
                "degenerate: nothing tried tells a real answer from a made-up one, so no speedup on it counts"
            )
        if 0 < self.separation < 1:
            off = f"{self.separation:.2g} times what is admitted"
            result.append(
                f"does not tell the next coarser format from {self.built.task.precision}: a kernel in it is off by {off}"
            )
        return tuple(result)

    def release(self, draws: bool = False) -> None:
        """Drop the float64 twin, and with `draws` all kept cases; they are made again when needed."""
        self.reference.release()
        if draws:
            self._kept.clear()
            self._stock.clear()

    # ------------------------------------------------------------ comparing

    def check(self, case: Case, leaves: list[Any], spec_text: str) -> Comparison:
        """Compare a candidate's result by `calls.describe` with a case."""
        comparison = self._agree(case, leaves, spec_text)
        if not comparison.ok and comparison.worst == comparison.worst and not case.looked_up:
            case.looked_up = True
            if self._calibration.recheck_in_float64(case.draw, case.spec_text, case.expected):
                comparison = self._agree(case, leaves, spec_text)
        if not comparison.ok and case.key.family in NONFINITE:
            hint = "; --set judge.finite_only=true admits what is right for finite inputs of ordinary size only"
            return replace(comparison, text=f"{comparison.text}{hint}")
        return comparison

    def _agree(self, case: Case, leaves: list[Any], spec_text: str) -> Comparison:
        return outputs_agree(
            case,
            leaves,
            spec_text,
            self.precision,
            self._sensitivity,
            self.reference.with_noise,
            self._envelopes,
            self._exact_strides,
        )

    def check_buffers(
        self, case: Case, got: Buffers, only: Collection[str] | None = None
    ) -> Comparison:
        """Compare the candidate's buffers after the call; `only`: of these names."""
        before = self.initial(case.key.weights)
        return buffers_agree(case, got, before, self.precision, self._envelopes, only)

    def _sensitivity(self, case: Case) -> list[Sensitivity]:
        if case.sensitivity is None:
            count = sensitivity.NUM_NOISES
            more = sensitivity.NUM_ALIKE if self._quantised else 0
            runs = [
                self.reference.with_noise(case.draw, 10_000 + n, alike=n >= count)
                for n in range(count + more)
            ]
            usable = [
                run.leaves for run in runs if run is not None and run.spec_text == case.spec_text
            ]
            case.sensitivity = sensitivity.measure(case.expected, usable, self.precision.cap)
        return case.sensitivity

    # ------------------------------------------------------------ making

    def _made(self, key: InputSetKey) -> Case:
        if key.family != NATIVE or key.other_mode:
            return self._derived(key)
        self._vet_weights(key.weights)
        base = self._base(key.backward)
        if (kept := self._kept.get(key)) is not None:
            return kept
        return self._held_against_truth(key) if key == base.key else self._followed(key)

    def _base(self, backward: bool) -> Case:
        """Calibration of the native case; its tensors may be gone."""
        if backward not in self._bases:
            seed = self.keys[0].seed if self.keys else derived(self._seed, "base")
            case = self._held_against_truth(
                InputSetKey(self.drawing.cheap(), NATIVE, 0, seed, backward)
            )
            self._keep(case.key, case)
            thin = replace(
                case,
                args=[],
                kwargs={},
                buffers={},
                along=None,
                expected=[e.thin() for e in case.expected],
            )
            self._bases[backward] = self._best[backward] = thin
        return self._bases[backward]

    def _held_against_truth(self, key: InputSetKey) -> Case:
        draw, _ = self.drawing.drawn(key)
        try:
            answer = self.reference.run(draw)
        except NotDifferentiable as error:
            raise TaskError(
                f"gradients of {self.built.task.entry} cannot be compared: {error}",
                "judge it without --backward",
            ) from None
        return Case.of(key, draw, answer, self._calibration.calibrated(draw, answer, lower=True))

    def _keep(self, key: InputSetKey, case: Case) -> None:
        size = case.num_bytes + num_bytes([e.truth for e in case.expected])
        if key not in self._kept and size <= self._room:
            self._room -= size
            self._kept[key] = case

    def _followed(self, key: InputSetKey) -> Case:
        base = self._base(key.backward)
        key = replace(key, weights=self.sets.effective(key.weights))
        draw, _ = self.drawing.drawn(key)
        answer = self.reference.run(draw)
        if answer.spec_text != base.spec_text:
            raise UnfitInputs("the reference returns another structure")
        return Case.of(key, draw, answer, self._calibration.followed(draw, answer, base.expected))

    def _strayed(self, key: InputSetKey) -> Case | None:
        """Return the native draw of `key` with strays in it; None outside the reference's domain."""
        planned = next((k for k in self.keys if k.family == STRAYS), None)
        if planned is None or key.backward or not self._strays_fit(planned):
            return None
        assert self._lurking is not None
        like, keep_sign = self._lurking
        base = self._base(False)
        draw, changed = self.drawing.drawn(replace(key, family=STRAYS), keep_sign)
        try:
            answer = self.reference.run(draw)
        except Exception:  # noqa: BLE001 - values of our making
            return None
        if not changed or answer.spec_text != base.spec_text:
            return None
        expected = self._calibration.followed(draw, answer, base.expected)
        for want, other, known in zip(
            expected, self._calibration.followed(draw, answer, like), like, strict=True
        ):
            if known.finite and not want.finite:
                return None
            want.admitted = want.admitted.at_least(other.admitted)
        return Case.of(replace(key, family=STRAYS), draw, answer, expected)

    def _strays_fit(self, planned: InputSetKey) -> bool:
        """Whether the reference takes strays; looked at once, since a large case is not kept."""
        if self._lurking is None and STRAYS not in self.skipped:
            self.get(planned)
        return self._lurking is not None

    def _derived(self, key: InputSetKey) -> Case:
        if key.variant not in self.built.variants:
            key = replace(key, variant=self.drawing.cheap())
        if not key.other_mode and key.family not in (*ARGUED, *NONFINITE):
            return self._family(key)
        self._vet_weights(key.weights)
        key = replace(key, weights=self.sets.effective(key.weights))
        if key.other_mode:
            return self._further.other_mode(key)
        return self._further.argued(key) if key.family in ARGUED else self._further.nonfinite(key)

    def _family(self, key: InputSetKey) -> Case:
        reason = "no floating input whose values could be changed"
        for weights, keep_sign, keep_numbers in self._attempts(key):
            tried = replace(key, weights=weights)
            draw, changed = self.drawing.drawn(tried, keep_sign, keep_numbers)
            if not changed:
                continue
            if key.family == "zero_mean" and all(zero_mean_already(t) for t in changed):
                raise UnfitInputs("native inputs have zero mean already")
            try:
                case = self._fitting(replace(tried, told=draw.told), draw)
            except UnfitInputs as why:
                reason = str(why)
                continue
            if key.family == STRAYS and self._lurking is None and not key.backward:
                self._lurking = [e.thin() for e in case.expected], keep_sign
            return case
        raise UnfitInputs(reason)

    def _attempts(self, key: InputSetKey) -> Iterator[tuple[int, bool, bool]]:
        """Return (weight set, keep non-negative values, keep numbers) triples, boldest first; numbers change under one set only."""
        sets = [key.weights, 1, 0] if key.weights == INTEGERS else [key.weights, 0]
        for weights in sets:
            self._vet_weights(weights)
        for weights in dict.fromkeys(self.sets.effective(w) for w in sets):
            if key.family == QUANTISED and key.weights == 1:
                yield weights, False, False
            yield weights, False, True
            yield weights, True, True

    def _fitting(self, key: InputSetKey, draw: InputDraw) -> Case:
        """Return the case of a family, if it is inside the reference's domain."""
        base = self._base(key.backward)
        try:
            answer = self.drawing.answered(key, draw)
        except Exception as error:  # noqa: BLE001 - the reference may refuse values that it would never be given
            raise UnfitInputs(f"the reference raises {type(error).__name__}") from None
        if answer is None or answer.spec_text != base.spec_text:
            raise UnfitInputs("the reference returns another structure")
        told = key.family == "zero_mean"
        like = None if told else self._best[key.backward].expected
        expected = self._calibration.calibrated(
            draw, answer, lower=told, like=like, equal_terms=key.family in TIES
        )
        case = Case.of(key, draw, answer, expected)
        for want, known in zip(case.expected, base.expected, strict=True):
            if not want.finite and known.finite:
                raise UnfitInputs("the reference returns NaN or infinity")
            exact = want.own.within(self.precision.ceiling) or not known.own.within(
                self.precision.ceiling
            )
            if want.scale is not None and not exact:
                raise UnfitInputs("the reference itself is inexact there")
        self._refuse_jumps(case)
        if told and case.separation > self._best[key.backward].separation:
            self._best[key.backward] = case
        return case

    def _refuse_jumps(self, case: Case) -> None:
        if case.key.family in TIES and sensitivity.arbitrary_at_ties(case.expected):
            raise UnfitInputs("equal values make indices arbitrary")
        run = self.reference.with_noise(case.draw, 30_000)
        if run is None or run.spec_text != case.spec_text:
            raise UnfitInputs("the reference does not run there with rounding noise")
        if sensitivity.jumpy(case.expected, run.leaves, self.precision.cap):
            raise UnfitInputs("the outputs jump at many elements there")

    def _vet_weights(self, weights: int) -> None:
        """Retire a randomised set under which the reference leaves its domain on native inputs."""
        if weights in self._vetted:
            return
        self._vetted.add(weights)
        base = self._base(False)
        try:
            answer = self.reference.run(self.drawing.drawn(replace(base.key, weights=weights))[0])
        except Exception as error:  # noqa: BLE001 - weights of our making are ours to take back, whatever they broke
            why = f"the reference raises {type(error).__name__} under redrawn weights"
        else:
            pairs = zip(answer.leaves, base.expected)
            if all(
                e.scale is None or not e.finite or bool(leaf.isfinite().all()) for leaf, e in pairs
            ):
                return
            why = "the reference returns NaN or infinity under redrawn weights"
        self.sets.retire(weights)
        self.skipped[f"weights {weights}"] = why
