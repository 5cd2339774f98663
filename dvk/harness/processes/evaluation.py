"""Evaluation of one candidate, from text to findings: load, check, time. The referee's side; runs none of its code.

The order is that of cost: checks that most wrong candidates fail come first, and the first failure ends it. The result is the fields of a
`Verdict` that are known here, and raw samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median
from typing import Any

from pydantic import ValidationError

from dvk.config import JudgeConfig
from dvk.harness.checking.case_keys import InputSetKey
from dvk.harness.checking.cases import Cases
from dvk.harness.processes.candidate_checks import CandidateChecks, WrongResult
from dvk.harness.processes.held_weights import Changed
from dvk.harness.profiling.record import Profile
from dvk.harness.provenance.own_kernels import KernelProvenance
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered, RunnerClient
from dvk.harness.timing.output_aliasing import OutputOverwritten
from dvk.harness.timing.overhead import corrected_ms, tolerated_ms
from dvk.harness.timing.paired_timer import InputChanged, OutOfBoundsWrite, PairedTimer
from dvk.harness.timing.thread_sampler import ENOUGH_SEEN
from dvk.harness.transport.link import Gone
from dvk.harness.transport.memory_budget import release_cached
from dvk.records import Status, Task

Say = Callable[[str], None]
Findings = dict[str, Any]

MOST_PROFILE = 1 << 20
"""Most characters of a profile that are read."""


FAILURES = (
    CandidateFailed,
    WrongResult,
    OutOfBoundsWrite,
    InputChanged,
    OutputOverwritten,
    Changed,
    Interfered,
    Gone,
)
"""Exceptions that end a candidate's evaluation with findings."""


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
        self.say, self.lane, self.threads = say, lane, threads
        self.checks = CandidateChecks(task, cases, settings, timer, runner, say, threads, turn)
        self.stage = "compile"
        self.compiled: dict[str, Any] = {}
        self.provenance: KernelProvenance | None = None
        """Evidence for --require-kernels."""
        self.coverage: float | None = None
        self.home = ""

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
        captured: Sequence[str],
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
            captured: baselines that the player replays in the same rounds as its plan.
            rounds: paired calls.
            limit_s: seconds for the rounds.
            settle: ends other processes that the candidate has started.
        """
        began = time.perf_counter()
        checks, self.stage, self.home = self.checks, "compile", home
        checks.interpreted, checks.contract = (
            untimed is not None,
            "module" if plan is None else "plan",
        )
        if require_kernels:
            sampled = self.task.device == "cpu" and untimed is None
            self.provenance = KernelProvenance(
                self.timer, self.runner, self.home, checks.bare, sampled
            )
        try:
            self.say("queue")
            with self.lane(False):
                self.say("compile")
                self._load(source, plan, deprived)
                self.stage = "check"
                twice = not one_case and not (arms and not untimed)
                self._check(keys[:1] if one_case else keys, began, untimed, twice, deprived)
            if not arms or untimed:
                findings = self._profiled() if profile else {}
                return self._findings(Status.OK, "done", untimed_reason=untimed, **findings)
            settle()
            self.say("prepare")
            with self.lane(False), self.threads():
                self.cases.stock(self.timer.rounds_within(limit_s, 1 + len(arms), rounds))
            if plan is None:
                return self._module_timed(arms, rounds, limit_s, profile)
            return self._plan_timed(captured, rounds, limit_s, profile)
        except FAILURES as error:
            return self._failed(error)

    def _check(
        self,
        keys: Sequence[InputSetKey],
        began: float,
        untimed: str | None,
        twice: bool,
        deprived: bool,
    ) -> None:
        """Compare it with the reference, and prove that its own kernels compute; see `run`."""
        checks, provenance = self.checks, self.provenance
        if provenance is not None and deprived:
            provenance.first_call(native := self.cases.fresh(0))
            checks.note_checked(native)
            return
        checks.check_all(keys, began, untimed, twice)
        if provenance is not None and checks.contract == "module":
            usual = {
                one.key.variant: one.key
                for one in checks.checked
                if not (one.backward or one.key.told or one.key.other_mode)
            }
            provenance.prove(usual, self.cases, checks.follows)

    def _load(self, source: str, plan: dict[str, Any] | None, deprived: bool) -> None:
        """Have the candidate's process build it, or the player take its plan."""
        if self.provenance is not None and deprived:
            with self.provenance.while_loading():
                self.timer.load_candidate(self.runner, source)
                self.runner.answer()
                self.checks.follows = self.checks.holding.load(0)
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
            self.checks.worst = (
                error.error if not error.error <= self.checks.worst else self.checks.worst
            )
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
        reached = bool(self.checks.checked) or status is Status.MISMATCH
        worst = (
            self.checks.worst
            if self.checks.worst == self.checks.worst and self.checks.worst != float("inf")
            else None
        )
        return {
            "status": status.value,
            "stage": stage,
            "contract": self.checks.contract,
            "compiled": self.compiled,
            "coverage": self._covered(),
            "precision": self.task.precision if reached else None,
            "tolerance": self.checks.tolerance if reached else None,
            "worst_error": worst if reached else None,
            "worst_absolute_error": self.checks.worst_absolute,
            "num_checks": len(self.checks.checked),
            "shapes": list(dict.fromkeys(one.text for one in self.checks.checked)),
            "families": list(dict.fromkeys(one.key.family for one in self.checks.checked)),
            "skipped": self.cases.skipped | self.checks.untried,
            "notes": list(self.checks.notes),
            "weights": ("randomised" if self.checks.follows else "same_seed")
            if self.checks.checked
            else None,
            **more,
        }

    def _covered(self) -> float | None:
        return (
            self.provenance.coverage
            if self.coverage is None and self.provenance is not None
            else self.coverage
        )

    # ------------------------------------------------------------ time

    def _module_timed(
        self, arms: Mapping[str, RunnerClient], rounds: int, limit_s: float, profile: bool
    ) -> Findings:
        """Its host code, in rounds with the arms."""
        with self._timing():
            timed = self._timed(arms, rounds, limit_s)
            findings = self._profiled() if profile else {}
        return {**timed, **findings, "coverage": self._covered()}

    def _plan_timed(
        self, captured: Sequence[str], rounds: int, limit_s: float, profile: bool
    ) -> Findings:
        """Time its launches, the reference's and those of captured baselines, all replayed by the player."""
        self.runner.ask("prepare", beside=list(captured))
        with self._timing():
            samples, outputs = self.timer.time_replays(
                self.runner,
                captured,
                rounds=rounds,
                limit_s=limit_s,
                on_output=self.checks.timed_output,
                width=self.settings.settled,
            )
            findings = self._profiled() if profile else {}
        self.say("check")
        for told in outputs:
            self.checks.timed_output(*told)  # a plan returns its other results as recorded
        return self._findings(
            Status.OK,
            "done",
            samples=samples.ms,
            charged_ms=0.0,
            seconds_timed=samples.seconds,
            regime="device",
            **findings,
        )

    @contextmanager
    def _timing(self) -> Iterator[None]:
        """The device is held for a measurement."""
        release_cached()  # the timed processes may need it
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
                on_output=self.checks.timed_output,
                early=True,
                width=self.settings.settled,
                seen=seen,
            )
        usual, tolerated = samples.gaps_ms["reference"], tolerated_ms(samples.ms["reference"])
        told = {
            name: corrected_ms(ms, samples.gaps_ms[name], usual, tolerated)
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
        if profile is not None and self.checks.contract == "plan":
            self.coverage = profile.coverage
        elif self._covered() is None and self.task.device == "cpu" and not self.checks.interpreted:
            seen = self.timer.sample_threads(self.runner, self.home)
            self.coverage = seen.share if seen.count >= ENOUGH_SEEN // 2 else None
        return {"profile": profile and profile.model_dump(mode="json")}
