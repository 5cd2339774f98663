"""Checks of one candidate: calls on input sets, and the comparison of what they return and leave. The referee's side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from dvk.config import JudgeConfig
from dvk.harness.checking.agreement import furthest
from dvk.harness.checking.case import Case, Comparison
from dvk.harness.checking.case_keys import OTHER_MODE, InputSetKey
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.compare import same_bits, values
from dvk.harness.processes.held_weights import MOST_BYTES, Holding, leaves_of
from dvk.harness.supervision.runner_client import CandidateFailed, RunnerClient
from dvk.harness.timing.output_aliasing import AliasCheck
from dvk.harness.timing.paired_timer import PairedTimer, Told
from dvk.harness.transport.calls import with_written
from dvk.harness.transport.faults import claims
from dvk.harness.transport.lent_tensors import Board, copied, layout_claimed
from dvk.records import Status, Task

INTERPRETER_SHARE = 0.6
"""Checking time after which later input sets are left out, if nothing is timed and checking is slow."""


class WrongResult(Exception):
    """The candidate disagrees with the reference; the message says how."""

    def __init__(self, message: str, error: float = float("nan")):
        super().__init__(message)
        self.error = error


@dataclass(frozen=True)
class CheckedSet:
    """An input set on which the candidate was right; its tensors are not kept for it."""

    key: InputSetKey
    text: str
    backward: bool


class CandidateChecks:
    """Compares one candidate's calls with a session's cases.

    Args:
        task: the task that it competes for.
        cases: input sets with the reference's results.
        settings: seconds a candidate.
        timer: boards.
        runner: the candidate's process.
        say: called with the name of each stage as it starts.
        threads: context manager in which PyTorch uses all cores.
        turn: context manager that holds all cores for a moment.
    """

    def __init__(
        self,
        task: Task,
        cases: Cases,
        settings: JudgeConfig,
        timer: PairedTimer,
        runner: RunnerClient,
        say: Callable[[str], None],
        threads: Callable[[], AbstractContextManager[None]],
        turn: Callable[[], AbstractContextManager[None]],
    ):
        self.task, self.cases, self.settings, self.timer = task, cases, settings, timer
        self.runner, self.say, self.threads, self.turn = runner, say, threads, turn
        self.checked: list[CheckedSet] = []
        self.worst = 0.0
        self.worst_absolute: float | None = None
        """Of the first native call, once it is right."""
        self.tolerance = 0.0
        self.follows = False
        """Whether it takes the reference's state_dict."""
        self.interpreted = False
        self.contract = "module"
        self.notes: dict[str, None] = {}
        """Notes for callers on a right candidate, in the order found."""
        self.alias_check = AliasCheck(cases, runner)
        self.holding = Holding(cases, timer, runner)
        self.untried: dict[str, str] = {}
        """Input sets that it was not compared on, by name, with reasons."""

    def note_checked(self, case: Case) -> None:
        """Record that it was right on a case."""
        self.checked.append(CheckedSet(case.key, case.text, case.backward))

    def check_all(
        self, keys: Sequence[InputSetKey], began: float, untimed: str | None, again: bool
    ) -> None:
        """Check one input set; `again`: call the native shape a second time, if no key does it next and it is not timed."""
        loaded, place = -100, self.timer.native.key.place
        for key in keys:
            if (
                untimed
                and self.checked
                and time.perf_counter() - began > INTERPRETER_SHARE * self.settings.candidate_s
            ):
                break
            case = self._case(key)
            if (
                case is None
                or (case.key.weights and self.checked and not self.follows)
                or self._is_beyond(case)
            ):
                continue
            if again and len(self.checked) == 1 and case.key.place != place:
                self._check(self.timer.native, self.timer.board_for(self.timer.native))
            if case.key.weights != loaded:
                if self.follows:
                    self.holding.check_kept(loaded)
                loaded = case.key.weights
                self.follows = self.holding.load(loaded)
                if loaded and not self.follows:
                    continue
            board = self.timer.board_for(case)
            if case.key.place != place:
                self.timer.lend(self.runner, case)
                place = case.key.place
                self.alias_check.forget()
            self._check(case, board)
        if again and len(self.checked) == 1:
            self._check(self.timer.native, self.timer.board_for(self.timer.native))
        if self.follows:
            self.holding.check_kept(loaded)
            if loaded:
                self.holding.restore()
        if place != self.timer.native.key.place:
            self.timer.lend(self.runner, self.timer.native)

    def _is_beyond(self, case: Case) -> bool:
        """Whether the case is outside of a plan, which was recorded with the example's arguments, in one mode."""
        return self.contract == "plan" and bool(case.key.told or case.key.other_mode)

    def _case(self, key: InputSetKey) -> Case | None:
        """Compute the reference's results outside the candidate's time."""
        self.say("prepare")
        with self.threads():
            case = self.cases.get(key)
        self.say("check")
        return case

    def _check(self, case: Case, board: Board) -> None:
        # many compile at their first call, and need not wait
        with self.alias_check.watch_call(), self.turn() if self.checked else nullcontext():
            try:
                answer = self._called(case, backward=case.backward, other_mode=case.key.other_mode)
            except CandidateFailed as error:
                if not case.key.other_mode:
                    raise
                self.untried[OTHER_MODE] = f"the candidate raises there: {error.error}"
                return
        leaves, spec = claims(answer)
        outputs, spec = self._outputs(case, board, leaves, spec)
        if changed := board.holds(
            case.inputs, but=self.cases.written.positions(case.args, case.kwargs)
        ):
            raise WrongResult(
                f"it changes an input in place ({case.text}, input tensor {changed[0]})"
            )
        if beside := board.written_beside():
            raise CandidateFailed(
                Status.LAUNCH_ERROR,
                "check",
                f"it writes outside its tensors ({case.text}, next to input tensor {beside[0]})",
            )
        self._accept(self.cases.check(case, outputs, spec))
        if (
            case.key.variant == self.timer.native.key.variant
            and case.backward == self.timer.native.backward
        ):  # timed calls return gradients in training tasks alone
            self.runner.returned = [
                layout
                for leaf in leaves
                if "address" in leaf and (layout := layout_claimed(leaf)) is not None
            ]
        if not self.checked:
            self.worst_absolute = furthest(outputs, case.expected)
        self._buffers_agree(case)
        self.alias_check.accept(case, leaves if self.contract == "module" else [])
        self.note_checked(case)

    def _outputs(
        self, case: Case, board: Board, leaves: list[dict[str, Any]], spec: str
    ) -> tuple[list[Any], str]:
        """Return a call's results, then the final values of the inputs that the reference writes, and the text of the nesting.

        Raises:
            WrongResult: it did not write one of them.
        """
        most = 2 * case.num_bytes + MOST_BYTES
        outputs = self.runner.fetch(leaves, most_bytes=most, briefly=True)
        positions = self.cases.written.positions(case.args, case.kwargs)
        for number, want in zip(
            positions, case.expected[len(case.expected) - len(positions) :], strict=True
        ):
            place, before = board.tensors[number], case.inputs[number]
            if (
                same_bits(place, before)
                and not same_bits(want.same, before)
                and values(before, want)[1] is not None
            ):
                raise WrongResult(
                    f"`{want.name}` should hold what the reference writes there, and is as it was before ({case.text})"
                )
            outputs.append(copied(place))
        return outputs, with_written(spec, len(positions))

    def _called(self, case: Case, **order: bool) -> dict[str, Any]:
        return self.runner.call(
            self.timer.runner_seed(case), separate=self.cases.reference.gives_buffers, **order
        )

    def _accept(self, outcome: Comparison, where: str = "") -> None:
        self.tolerance = max(self.tolerance, outcome.tolerance)
        if not outcome.ok:
            raise WrongResult(
                f"{where}{outcome.text}{self._excuse()}{self.holding.told}", outcome.worst
            )
        self.worst = max(self.worst, outcome.worst)
        self.notes |= dict.fromkeys(outcome.notes)

    def _excuse(self) -> str:
        if (
            self.task.device == "cpu"
            and self.interpreted
            and any("bfloat16" in s.dtype for s in (*self.task.inputs, *self.task.outputs))
        ):
            return "; Triton's interpreter computes bfloat16 wrongly, so check this one on a GPU"
        return ""

    def _buffers_agree(self, case: Case) -> None:
        """Compare running statistics, which a module in train mode computes, too."""
        if case.buffers:
            self._accept(
                self.cases.check_buffers(case, self.holding.named("buffers", set(case.buffers)))
            )

    def bare(self, case: Case) -> None:
        """Make one call without PyTorch's operators, and check it."""
        answer = self._called(case, bare=True)
        outputs, spec = self._outputs(case, self.timer.boards[case.key.place], *claims(answer))
        if not (outcome := self.cases.check(case, outputs, spec)).ok:
            raise CandidateFailed(Status.MISMATCH, "check", str(outcome.text))

    def timed_output(
        self,
        case: Case,
        outputs: list[torch.Tensor],
        buffers: Mapping[str, torch.Tensor] = MappingProxyType({}),
        told: Told | None = None,
    ) -> None:
        wanted = [e.same for e in case.expected]
        constants, text = told or (
            [one for one in wanted if not isinstance(one, torch.Tensor)],
            case.spec_text,
        )
        text = with_written(text, len(self.timer.written)) if told else text
        leaves = leaves_of(wanted, outputs, constants)
        self._accept(self.cases.check(case, leaves, text), "in a timed call: ")
        if buffers:
            outcome = self.cases.check_buffers(case, dict(buffers), only=buffers.keys())
            self._accept(outcome, "in a timed call: ")
