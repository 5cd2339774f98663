"""Evaluation of one candidate, from text to findings: load, check, time. The referee's side; runs none of its code.

The order is that of cost: checks that most wrong candidates fail come first, and the first failure ends it. The result is the fields of a
`Verdict` that are known here, and raw samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from statistics import median
from types import MappingProxyType
from typing import Any

import torch
from pydantic import ValidationError

from dvk.config import JudgeConfig
from dvk.harness.checking.case import Case, Comparison
from dvk.harness.checking.case_keys import OTHER_MODE, InputSetKey
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.compare import same_bits, values
from dvk.harness.processes.held_weights import MOST_BYTES, Changed, Holding, leaves_of
from dvk.harness.profiling.record import Profile
from dvk.harness.provenance.own_kernels import KernelProvenance
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered, RunnerClient
from dvk.harness.timing.output_aliasing import AliasCheck, OutputOverwritten
from dvk.harness.timing.overhead import corrected_ms, handshake_allowance_ms
from dvk.harness.timing.paired_timer import (
    ENOUGH_SEEN,
    InputChanged,
    OutOfBoundsWrite,
    PairedTimer,
    Told,
)
from dvk.harness.transport.calls import with_written
from dvk.harness.transport.faults import claims
from dvk.harness.transport.lent_tensors import Board, copied, layout_claimed
from dvk.harness.transport.link import Gone
from dvk.records import Status, Task

Say = Callable[[str], None]
Findings = dict[str, Any]

INTERPRETER_SHARE = 0.6
"""Checking time after which later input sets are left out, if nothing is timed and checking is slow."""

MOST_PROFILE = 1 << 20
"""Most characters of a profile that are read."""


class WrongResult(Exception):
    """The candidate disagrees with the reference; the message says how."""

    def __init__(self, message: str, error: float = float("nan")):
        super().__init__(message)
        self.error = error


class CandidateEvaluation:
    """Judges one candidate against a session's cases.

    Args:
        task: the task that it competes for.
        cases: input sets with the reference's results.
        settings: pairs and seconds.
        bench: boards and clock.
        peer: the candidate's process.
        say: called with the name of each stage as it starts.
        lane: context manager that locks the device, for a measurement (True) or for other work.
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
        say: Say,
        lane: Callable[[bool], AbstractContextManager[None]],
        threads: Callable[[], AbstractContextManager[None]],
        turn: Callable[[], AbstractContextManager[None]],
    ):
        self.task, self.cases, self.settings, self.timer, self.runner = (
            task,
            cases,
            settings,
            timer,
            runner,
        )
        self.say, self.lane, self.threads, self.turn = say, lane, threads, turn
        self.checked: list[Case] = []
        self.worst = 0.0
        self.tolerance = 0.0
        self.follows = False
        """Whether it takes the reference's state_dict."""
        self.stage = "compile"
        self.interpreted = False
        self.compiled: dict[str, Any] = {}
        self.provenance: KernelProvenance | None = None
        """Evidence for --require-kernels."""
        self.coverage: float | None = None
        self.notes: dict[str, None] = {}
        """Notes for callers on a right candidate, in the order found."""
        self.home = ""
        self.contract = "module"
        self.alias_check = AliasCheck(cases, runner)
        self.holding = Holding(cases, timer, runner)
        self.untried: dict[str, str] = {}
        """Input sets that it was not compared on, by name, with reasons."""

    def run(
        self,
        source: str,
        *,
        keys: Sequence[InputSetKey],
        plan: dict[str, Any] | None,
        untimed: str | None,
        one_case: bool,
        require_kernels: bool,
        deprived: bool,
        profile: bool,
        home: str,
        arms: Mapping[str, RunnerClient],
        rounds: int,
        limit_s: float,
        settle: Callable[[], None],
    ) -> Findings:
        """Return findings on `source`.

        Args:
            keys: the input sets to check, in this order.
            plan: the candidate's launches, for a player to replay in its place.
            untimed: None, or why it is not timed.
            one_case: check one input set only: several processes check the same source.
            require_kernels: its own kernels must do the computing.
            deprived: they must from the first call on, which is the only check before it is timed.
            profile: measure, last, where the time of a call goes.
            home: its process's private folder.
            arms: programs it is timed against, the reference among them; none: it is not timed.
            rounds: paired calls.
            limit_s: seconds for the rounds.
            settle: ends other processes that the candidate has started.
        """
        began = time.perf_counter()
        self.stage, self.interpreted, self.home = "compile", untimed is not None, home
        self.contract = "module" if plan is None else "plan"
        if require_kernels:
            sampled = self.task.device == "cpu" and untimed is None
            self.provenance = KernelProvenance(
                self.timer, self.runner, self.home, self._bare, sampled
            )
        try:
            self.say("queue")
            with self.lane(False):
                self.say("compile")
                self._load(source, plan, deprived)
                self.stage = "check"
                if self.provenance is not None and deprived:
                    self.provenance.first_call(native := self.cases.fresh(0))
                    self.checked.append(native)
                else:
                    twice = not one_case and not (arms and not untimed)
                    self._check_all(keys[:1] if one_case else keys, began, untimed, twice)
                    if self.provenance is not None and plan is None:
                        self.provenance.prove(self.checked, self.cases.fresh(0), self.follows)
            if not arms or untimed:
                found = self._profiled() if profile else {}
                return self._findings(Status.OK, "done", untimed_reason=untimed, **found)
            settle()
            self.say("prepare")
            with self.lane(False), self.threads():
                self.cases.stock(self.timer.rounds_within(limit_s, 1 + len(arms), rounds))
            if plan is None:
                return self._module_timed(arms, rounds, limit_s, profile)
            return self._plan_timed(rounds, limit_s, profile)
        except (
            CandidateFailed,
            WrongResult,
            OutOfBoundsWrite,
            InputChanged,
            OutputOverwritten,
            Changed,
            Interfered,
            Gone,
        ) as error:
            return self._failed(error)

    def _load(self, source: str, plan: dict[str, Any] | None, deprived: bool) -> None:
        """Have the candidate's process build it, or the player take its plan."""
        if self.provenance is not None and deprived:
            with self.provenance.while_loading():
                self.timer.load_candidate(self.runner, source)
                self.runner.answer()
                self.follows = self.holding.load(0)
        elif plan is None:
            self.timer.load_candidate(self.runner, source)
            self.runner.answer()
        else:
            loaded = self.runner.ask("plan", plan=plan)
            self.compiled = loaded.get("compiled", {})
            if self.provenance is not None:
                self.provenance.prove_plan(loaded.get("operators", ()))

    def _failed(self, error: Exception) -> Findings:
        """Findings on a candidate that failed in `self.stage`."""
        stage, timed = self.stage, "in a timed call: " if self.stage == "time" else ""
        if isinstance(error, CandidateFailed):
            again = (
                {"deprive": True} if self.provenance is not None and self.provenance.ended else {}
            )
            return self._findings(error.status, error.stage or stage, error=error.error, **again)
        if isinstance(error, WrongResult):
            self.worst = error.error if not error.error <= self.worst else self.worst
            return self._findings(Status.MISMATCH, stage, error=str(error))
        if isinstance(error, OutOfBoundsWrite):
            return self._findings(Status.LAUNCH_ERROR, stage, error=f"in a timed call: {error}")
        if isinstance(error, Interfered):
            return self._findings(
                Status.CHEAT, stage, error=f"it interfered with the judging: {error}"
            )
        if isinstance(error, Gone):  # its parent knows how it ended
            return self._findings(
                Status.LAUNCH_ERROR, stage, error="it ended its process", gone=True
            )
        return self._findings(Status.MISMATCH, stage, error=f"{timed}{error}")

    def _findings(self, status: Status, stage: str, **more: Any) -> Findings:
        reached = bool(self.checked) or status is Status.MISMATCH
        worst = self.worst if self.worst == self.worst and self.worst != float("inf") else None
        return {
            "status": status.value,
            "stage": stage,
            "contract": self.contract,
            "compiled": self.compiled,
            "coverage": self._covered(),
            "precision": self.task.precision if reached else None,
            "tolerance": self.tolerance if reached else None,
            "worst_error": worst if reached else None,
            "num_checks": len(self.checked),
            "shapes": list(dict.fromkeys(case.text for case in self.checked)),
            "families": list(dict.fromkeys(case.key.family for case in self.checked)),
            "skipped": self.cases.skipped | self.untried,
            "notes": list(self.notes),
            "weights": ("randomised" if self.follows else "same_seed") if self.checked else None,
            **more,
        }

    def _covered(self) -> float | None:
        return (
            self.provenance.coverage
            if self.coverage is None and self.provenance is not None
            else self.coverage
        )

    # ------------------------------------------------------------ check

    def _check_all(
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
            case.key.variant == self.timer.native.key.variant and not case.backward
        ):  # timed calls return no gradients
            self.runner.returned = [
                layout
                for leaf in leaves
                if "address" in leaf and (layout := layout_claimed(leaf)) is not None
            ]
        self._buffers_agree(case)
        self.alias_check.accept(case, leaves if self.contract == "module" else [])
        self.checked.append(case)

    def _outputs(
        self, case: Case, board: Board, leaves: list[dict[str, Any]], spec: str
    ) -> tuple[list[Any], str]:
        """Return a call's results, then the final values of the inputs that the reference writes, and the text of the nesting.

        Raises:
            WrongResult: it did not write one of them.
        """
        outputs = self.runner.fetch(leaves, most_bytes=2 * case.num_bytes + MOST_BYTES)
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

    def _bare(self, case: Case) -> None:
        """Make one call without PyTorch's operators, and check it."""
        answer = self._called(case, bare=True)
        outputs, spec = self._outputs(case, self.timer.boards[case.key.place], *claims(answer))
        if not (outcome := self.cases.check(case, outputs, spec)).ok:
            raise CandidateFailed(Status.MISMATCH, "check", str(outcome.text))

    # ------------------------------------------------------------ time

    def _module_timed(
        self, arms: Mapping[str, RunnerClient], rounds: int, limit_s: float, profile: bool
    ) -> Findings:
        """Its host code, in rounds with the arms."""
        with self._timing():
            timed = self._timed(arms, rounds, limit_s)
            found = self._profiled() if profile else {}
        return {**timed, **found, "coverage": self._covered()}

    def _plan_timed(self, rounds: int, limit_s: float, profile: bool) -> Findings:
        """Time its launches and the reference's, both replayed by the player."""
        self.runner.ask("prepare")
        with self._timing():
            samples, outputs = self.timer.time_pair(
                self.runner,
                rounds=rounds,
                limit_s=limit_s,
                on_output=self._timed_output,
                width=self.settings.settled,
            )
            found = self._profiled() if profile else {}
        self.say("check")
        for told in outputs:
            self._timed_output(*told)  # a plan returns its other results as recorded
        return self._findings(
            Status.OK,
            "done",
            samples=samples.ms,
            charged_ms=0.0,
            seconds_timed=samples.seconds,
            regime="device",
            **found,
        )

    @contextmanager
    def _timing(self) -> Iterator[None]:
        """The device is held for a measurement."""
        self.say("queue")
        with self.lane(True):
            self.stage = "time"
            self.say("time")
            yield

    def _timed(self, arms: Mapping[str, RunnerClient], rounds: int, limit_s: float) -> Findings:
        with (
            self.provenance.while_timing() if self.provenance is not None else nullcontext() as seen
        ):
            samples = self.timer.measure(
                {**arms, "candidate": self.runner},
                rounds=rounds,
                limit_s=limit_s,
                on_output=self._timed_output,
                early=True,
                width=self.settings.settled,
                seen=seen,
            )
        allowed = handshake_allowance_ms(samples.ms["reference"], samples.gaps_ms["reference"])
        told = {
            name: corrected_ms(ms, samples.gaps_ms[name], allowed)
            for name, ms in samples.ms.items()
        }
        charged = median(told["candidate"]) - median(samples.ms["candidate"])
        return self._findings(
            Status.OK,
            "done",
            samples=told,
            charged_ms=charged,
            seconds_timed=samples.seconds,
            regime="end_to_end",
        )

    def _profiled(self) -> Findings:
        """Return where the time of a call goes, if its process can report it; the share of its own kernels only from trusted observers.

        Those are the player, which replays them, and on a CPU the program counters of its threads.
        """
        native = self.timer.native
        self.timer.board.put(native.inputs)
        try:
            answer = self.runner.ask(
                "profile", num_bytes=native.num_bytes + self.cases.weight_bytes
            )
            profile = (
                Profile.model_validate(answer.get("profile"))
                if len(str(answer)) < MOST_PROFILE
                else None
            )
        except (CandidateFailed, Interfered, Gone, ValidationError):
            return {}
        if profile is not None and self.contract == "plan":
            self.coverage = profile.coverage
        elif self._covered() is None and self.task.device == "cpu" and not self.interpreted:
            seen = self.timer.sample_threads(self.runner, self.home)
            self.coverage = seen.share if seen.count >= ENOUGH_SEEN // 2 else None
        return {"profile": profile and profile.model_dump(mode="json")}

    def _timed_output(
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
            few = replace(case, buffers={name: case.buffers[name] for name in buffers})
            self._accept(self.cases.check_buffers(few, dict(buffers)), "in a timed call: ")
