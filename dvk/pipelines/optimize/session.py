"""One search of `dvk optimize`: its records so far, and the machinery around a strategy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from dvk import crashes, machine, target
from dvk.agents import TaskContext, dialects, selection
from dvk.backbone.pause_gate import OutOfTime
from dvk.backbone.recorded import RecordedBackbone
from dvk.composer import CannotCompose, CapturedGraph, Part, Plan, applicable, capture, fuse, join
from dvk.composer.recipes import OWN_FAMILIES
from dvk.config import Config
from dvk.crashes import Crashed
from dvk.errors import ModelError
from dvk.harness.placement import open_session
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.pipelines import tracebacks
from dvk.pipelines.live import SearchView
from dvk.pipelines.optimize import clock, summary
from dvk.pipelines.optimize.clock import TimeEstimate
from dvk.records import BackendName, Candidate, Graph, Skill, Task, Tier, Trace, Turn, Verdict
from dvk.runs import RunFolder
from dvk.search import Proposals, SearchProblem, Strategy, classes, tunings
from dvk.search.tunings import Known, ObservedGain, Tunings
from dvk.skills import Library, query_from_graph
from dvk.skills.graphs import NUM_RANKED, QUERY_TERMS
from dvk.target import Target

FIRST_VERDICT_S = 30.0
"""Longest wait for the first verdict if budget_s is less: it includes starting the judge."""

TURNS = "turns.jsonl"
KNOWN = "tunings.jsonl"
UNDECIDED = 1.2
"""Speedup that the interval of a candidate that looked slower must reach for it to be confirmed."""
NUM_CONFIRMED = 3
"""Maximal number of confirmed candidates: the search's favourite is lucky now and then, the third hardly ever."""


class SearchSession:
    """One search.

    Args:
        run: an open run; verdicts go there as they come.
        recorded: verdicts of an earlier process of this run.
        backbone: the language model, for strategies that ask one.
        library: the skills' file; None takes the default one.
        baselines: also timed when the best is confirmed.
        folder: for the search's own files, inside the run's; ends in `/`, empty for the run's folder itself.
        first: the finished search for another set of inputs of the same module: this one starts from its results.
    """

    def __init__(
        self,
        run: RunFolder,
        task: Task,
        backend: BackendName,
        config: Config,
        recorded: Sequence[Turn],
        backbone: RecordedBackbone | None = None,
        *,
        library: Path | None = None,
        baselines: Sequence[str] = (),
        folder: str = "",
        first: SearchSession | None = None,
    ):
        self.run, self.task, self.backend, self.config = run, task, backend, config
        self.library, self.baselines, self.backbone = (
            library,
            [b for b in baselines if b != "eager"],
            backbone,
        )
        self.folder, self.first = folder, first
        self.court = open_session(task, config, JudgeSpec(brief=True))
        self.turns: list[Turn] = list(recorded)
        self.traces: list[Trace] = []
        """Conversations with the model, as the strategy keeps them."""
        self.known = {
            t.candidate.id: t.verdict
            for t in recorded
            if t.candidate and t.verdict and t.verdict.tier != "claim"
        }
        calls = backbone.calls if backbone is not None else []
        searched = [t.elapsed_s for t in recorded if t.verdict is None or t.verdict.tier != "claim"]
        self.elapsed_before = max([0.0, *searched, *(call.elapsed_s for call in calls)])
        self.began = time.monotonic() - self.elapsed_before
        self.captured: CapturedGraph | None = None
        self.skills: tuple[Skill, ...] = ()
        self.observed: list[ObservedGain] = []
        """The search's findings about schedules."""
        self.reason: str | None = None
        self.unjudged: str | None = None
        """Why the search ended before its first verdict, if it did."""
        self.interrupted = False
        self.expected: TimeEstimate | None = None
        """Estimate of the command's time, if known."""
        self.capture_s = 0.0
        self.confirm_by: float | None = None
        """Deadline of confirming, on time.monotonic's clock, except the first candidate's first look; set when it begins."""
        self.failure: ModelError | None = None
        """The error that ended the model's part of the search."""

    @property
    def graph(self) -> Graph | None:
        return self.captured.graph if self.captured else None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began, those of earlier processes included."""
        return time.monotonic() - self.began

    @property
    def left_s(self) -> float:
        """Seconds of the search's budget that are left; negative when it is over."""
        return self.config.optimize.budget_s - self.elapsed_s

    # -------------------------------------------------------------- searching

    def search(self, strategy: Strategy, live: SearchView) -> None:
        """Feed the strategy with verdicts until it, the time or the user ends it."""
        live.resumed(self.turns)
        try:
            live.stage("capturing the operator graph")
            before = time.monotonic()
            self.captured = self._capture(live)
            self.skills = self._retrieve()
            self.capture_s = time.monotonic() - before
            if summary.in_train_mode(self.captured, self.task):
                live.note(summary.in_train_mode(self.captured, self.task))
            live.stage("searching")
            self.began = time.monotonic() - self.elapsed_before
            if (model := self.backbone) is not None:
                model.clock, model.left = lambda: self.elapsed_s, lambda: self.left_s
                model.on_ask = lambda number: live.asking(model.name, number)
            known, device = self._known()
            problem = SearchProblem(
                self.task,
                self.captured,
                self.backend,
                self.skills,
                self.config,
                self.backbone,
                self.traces.append,
                self._warned(live),
                known,
                device,
            )
            try:
                self._feed(strategy(problem), live)
            finally:
                self._learn(problem)
        except ModelError as error:
            if not self.turns:
                raise
            self._warned(live)(error)
        except CannotCompose as error:
            self.reason = f"the composer cannot capture this module: {error}"
        except KeyboardInterrupt:
            self.interrupted = True
            if not self.turns:
                self.unjudged = "stopped before the first verdict"
            elif not self.promising:
                self.reason = "stopped by the user before anything faster was found"
            else:
                live.note(
                    f"stopped: confirming the best so far, about {self._confirm_s:.0f} s; Ctrl-C once more ends at once"
                )
        except Exception as error:  # the fence: see dvk.crashes
            if crashes.ends_the_run(error):
                raise
            self._note(crashes.crashed(error, "searching"), live)
        finally:
            if self.backbone is not None:
                self.backbone.close()
        if self.failure is not None and not self.turns:
            raise self.failure

    def _warned(self, live: SearchView) -> Callable[[ModelError], None]:
        """Records the error that ended the model's part: reported at once, and again at the end."""

        def take(error: ModelError) -> None:
            self.failure = error
            live.note(f"warning: {error.message}; the search continues without the model")

        return take

    def _note(self, crash: Crashed, live: SearchView) -> None:
        """Report an error inside dvk: it ends this search and nothing else; earlier findings stay."""
        self.reason = crash.message
        self._keep(crash.traceback)
        live.note(f"{crash.message}; the traceback is in {self.run.path / tracebacks.FOLDER}")

    def _keep(self, traceback: str) -> None:
        tracebacks.keep(self.run, self.folder.strip("/") or self.task.name, [traceback])

    def _known(self) -> tuple[Known, Target]:
        """This machine's knowledge of schedules of the graph's kernels, and the device; a resumed search has what it began with."""
        if self.captured is None:
            return {}, target.DEFAULT
        if before := self.run.read(self.folder + KNOWN):
            return tunings.loaded(before[0]), target.loaded(before[1:])
        every = tuple(
            applicable(
                self.captured.graph,
                self.task.device,
                self.backend,
                inexact=self.config.optimize.inexact,
            )
        )
        plans = (every, tuple(name for name in every if name not in OWN_FAMILIES))
        kernels = [fuse(self.task, self.captured, recipes).ordered for recipes in plans]
        known = self._tunings().known(
            classes.class_of(kernel) for program in kernels for kernel in program
        )
        if (first := self.first) is not None and first.captured is not None:
            same = [
                pair
                for recipes, mine in zip(plans, kernels)
                for pair in classes.counterparts(
                    fuse(first.task, first.captured, recipes).ordered, mine
                )
            ]
            known = {**classes.carried_over(same, first.observed), **known}
        device = target.of_judge(self.config, self.task.device)
        self.run.append(self.folder + KNOWN, tunings.dumped(known))
        self.run.append(self.folder + KNOWN, asdict(device))
        return known, device

    def _learn(self, problem: SearchProblem) -> None:
        """Record measurements of schedules for later searches."""
        if self.captured is not None:
            tried = [
                (t.candidate, t.verdict)
                for t in self.turns
                if t.candidate and t.verdict and t.candidate.proposer == "composer"
            ]
            self.observed = classes.measurements(problem, tried)
            self._tunings().learn(self.task.id, self.observed)

    def _tunings(self) -> Tunings:
        return Tunings(
            self.config.remote.judge
            or self.config.remote.engine
            or machine.fingerprint(self.task.device),
            self.backend,
        )

    def _capture(self, live: SearchView) -> CapturedGraph | None:
        """The operator graph; None if there is none and the model can do without."""
        try:
            return capture(self.task, self.config.limits)
        except CannotCompose as error:
            if self.backbone is None or dialects.get(self.backbone.dialect).reads_graph:
                raise
            live.note(f"no operator graph, so the composer has nothing to propose: {error}")
            return None

    def _feed(self, proposals: Proposals, live: SearchView) -> None:
        with suppress(OutOfTime):
            try:
                batch = next(proposals, None)
                while batch is not None:
                    verdicts = self._judge(batch, live)
                    try:
                        batch = proposals.send(verdicts)
                    except StopIteration:
                        break
                    if None in verdicts:  # the time limit is reached
                        break
            finally:
                proposals.close()

    def _judge(self, batch: Sequence[Candidate], live: SearchView) -> list[Verdict | None]:
        verdicts: list[Verdict | None] = [self.known.get(c.id) for c in batch]
        missing = [i for i, v in enumerate(verdicts) if v is None]
        left = self.left_s
        if not self.turns:
            # However small the budget, the first candidate is worth a verdict.
            left = max(left, FIRST_VERDICT_S)
        if not missing or left <= 0:
            return verdicts

        began = time.monotonic()
        deadline = began + left
        for i in missing:
            if (known := self.known.get(batch[i].id)) is not None:  # repeated within one batch
                verdicts[i] = known
                continue
            if time.monotonic() >= deadline:
                break
            live.trying(batch[i].title, batch[i].proposer if self.backbone is not None else "")
            verdict = self._judged(batch[i], "search", deadline=deadline)
            if verdict is None:
                if not self.turns:
                    needed = clock.needed_s(time.monotonic() - began)
                    self.unjudged = (
                        f"the budget ended before the first verdict, which needs about {needed} s here "
                        f"(--budget-s {2 * needed} leaves time for others)"
                    )
                break
            verdicts[i] = verdict
            self._record(batch[i], verdict, live)
            if len(self.turns) == 1 and self.expected is not None:
                self._corrected(verdict, live)
        return verdicts

    def _corrected(self, first: Verdict, live: SearchView) -> None:
        """The estimate, now that the first verdict is known; reported if it changes much."""
        assert self.expected is not None
        before, self.expected = (
            self.expected,
            clock.corrected(
                self.expected, self.capture_s, first, self.config.judge, len(self.baselines)
            ),
        )
        if max(before.total, self.expected.total) > clock.OVER * min(
            before.total, self.expected.total
        ):
            live.note(f"after the first verdict: {self.expected}")

    @property
    def _confirm_s(self) -> float:
        """Estimated time of confirming."""
        return self.expected.confirm if self.expected is not None else clock.LEAST_CONFIRM_S

    def _judged(
        self,
        candidate: Candidate,
        tier: Tier,
        baselines: Sequence[str] = (),
        deadline: float | None = None,
    ) -> Verdict | None:
        """As `JudgeSession.judge`; an error inside dvk is the candidate's verdict."""
        result = crashes.run_guarded(
            "judging it", self.court.judge, candidate, tier, baselines, deadline
        )
        if not isinstance(result, Crashed):
            return result
        self.court.close()  # its stage is unknown
        self._keep(result.traceback)
        return crashes.verdict(result, tier)

    def _record(self, candidate: Candidate, verdict: Verdict, live: SearchView) -> None:
        turn = Turn(candidate=candidate, verdict=verdict, elapsed_s=self.elapsed_s)
        self.turns.append(turn)
        if verdict.tier != "claim":
            self.known[candidate.id] = verdict
        self.run.append(self.folder + TURNS, turn)
        live.judged(turn)

    def _retrieve(self) -> tuple[Skill, ...]:
        """Skills the library ranks for the task, best first; for a model with the query that its agents are trained with."""
        with Library.open(self.library) as library:
            if self.backbone is not None or self.captured is None:
                return tuple(
                    selection.candidates(
                        TaskContext(self.task, self.captured, self.backend),
                        library,
                        self.config.agents,
                    )
                )
            query = query_from_graph(self.captured.graph, library, QUERY_TERMS)
            return tuple(hit.skill for hit in library.search(query, NUM_RANKED, snippets=False))

    # -------------------------------------------------------------- confirming

    @property
    def promising(self) -> list[Turn]:
        """Candidates worth minutes of confirming: those that looked faster in the search, the fastest first.

        If none did, one that a noisy machine left undecided.
        """
        ranked = summary.ranked(self.turns)
        faster = [turn for turn, speedup in ranked if speedup.value > 1]
        return (
            faster[:NUM_CONFIRMED]
            or [turn for turn, speedup in ranked if speedup.hi >= UNDECIDED][:1]
        )

    @property
    def unconfirmed(self) -> list[Turn]:
        """Candidates that looked faster in the search and were neither confirmed nor refused since, the fastest first."""
        claimed = {
            t.candidate.id
            for t in self.turns
            if t.candidate and t.verdict and t.verdict.tier == "claim" and not t.verdict.timing
        }
        return [
            turn for turn in self.promising if turn.candidate and turn.candidate.id not in claimed
        ]

    def confirm(self, live: SearchView) -> Turn | None:
        """The winner, judged again in a fresh process at the claim tier; None when nothing holds."""
        ranked = self.promising
        for turn in ranked:
            if (
                self.confirm_by is not None
                and time.monotonic() + self._confirm_s / 2 >= self.confirm_by
            ):
                break  # not even a first look would fit
            assert turn.candidate is not None and turn.verdict is not None
            try:
                claim = self.claim(turn.candidate, live)
            except KeyboardInterrupt:
                self.interrupted, self.reason = (
                    True,
                    "stopped before the best was confirmed: the search's own figure is given",
                )
                return turn if turn.verdict.faster else None
            if claim.verdict is not None and claim.verdict.faster:
                return claim
        return self.proven or (self.refuted if ranked else None)

    @property
    def proven(self) -> Turn | None:
        """The fastest earlier confirmed candidate, as from a run that now resumes with a larger budget."""
        held = [
            t
            for t in self.turns
            if t.verdict is not None
            and t.verdict.tier == "claim"
            and t.verdict.faster
            and t.verdict.timing
        ]
        return max(
            held,
            key=lambda t: t.verdict.timing.speedup.value if t.verdict and t.verdict.timing else 0.0,
            default=None,
        )

    def claim(self, candidate: Candidate, live: SearchView, what: str = "the best") -> Turn:
        """The candidate judged in fresh processes, or as it was before the run was killed.

        Args:
            what: the candidate's description.

        Raises:
            KeyboardInterrupt: the user stopped it.
        """
        before = [
            t
            for t in self.turns
            if t.candidate
            and t.candidate.id == candidate.id
            and t.verdict
            and t.verdict.tier == "claim"
        ]
        if before and self._covers(before[-1]):
            return before[-1]
        if self.confirm_by is None:
            self.confirm_by = time.monotonic() + clock.OVER * self._confirm_s
        live.stage(
            f"confirming {what} in fresh processes, about {max(0.0, self.confirm_by - time.monotonic()):.0f} s at most"
        )
        self.court.decide_by = self.confirm_by
        verdict = self._judged(candidate, "claim", self.baselines)
        assert verdict is not None, "there is no deadline"
        self._record(candidate, verdict, live)
        return self.turns[-1]

    @property
    def refuted(self) -> Turn | None:
        """The search's best among candidates that did not hold when timed again; drop-ins for several sets of inputs begin with it."""
        claims = {
            t.candidate.id: t
            for t in self.turns
            if t.candidate
            and t.verdict
            and t.verdict.tier == "claim"
            and t.verdict.timing
            and not t.verdict.faster
        }
        places = {
            t.candidate.id: place
            for place, (t, _) in enumerate(summary.ranked(self.turns))
            if t.candidate
        }
        return min(
            claims.values(),
            key=lambda t: places.get(t.candidate.id, -1) if t.candidate else 0,
            default=None,
        )

    def part(self, candidate: Candidate) -> Part | None:
        """The plan that a candidate executes; None if the composer did not write it, so that it cannot be joined with others."""
        if self.captured is None or candidate.proposer != "composer":
            return None
        plan = Plan.of(candidate)
        part = Part(self.task, self.captured, fuse(self.task, self.captured, plan.recipes), plan)
        return part if join([part], self.backend).source == candidate.source else None

    def _covers(self, claim: Turn) -> bool:
        """Whether it was timed against all requested baselines."""
        timing = claim.verdict.timing if claim.verdict is not None else None
        return timing is None or set(self.baselines) <= set(timing.baselines)
