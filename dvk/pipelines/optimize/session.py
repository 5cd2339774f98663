"""One search of `dvk optimize`: its records so far, and the machinery around a strategy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from dvk import crashes, target
from dvk.agents import TaskContext, dialects, selection
from dvk.backbone.allowance import CapReached
from dvk.backbone.pause_gate import OutOfTime
from dvk.backbone.recorded import RecordedBackbone
from dvk.composer import CannotCompose, CapturedGraph, applicable_to, capture, fuse
from dvk.composer.codegen.base import takes_time_loops
from dvk.composer.recipes import OWN_FAMILIES
from dvk.config import Config
from dvk.crashes import Crashed
from dvk.errors import LibraryError, ModelError
from dvk.harness.placement import open_session
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.pipelines import tracebacks
from dvk.pipelines.live import SearchView
from dvk.pipelines.optimize import clock, limits, summary
from dvk.pipelines.optimize.clock import TimeEstimate
from dvk.pipelines.optimize.confirming import JudgedCandidates
from dvk.pipelines.optimize.reference_bounds import ReferenceBounds
from dvk.records import BackendName, Candidate, Graph, Skill, Task, Trace, Turn, Verdict
from dvk.runs import RunFolder
from dvk.search import (
    Proposals,
    SearchProblem,
    Strategy,
    classes,
    device_of,
    pytorch_lines,
    seeded,
    tunings,
)
from dvk.search.advised import searched
from dvk.search.composer import Planner
from dvk.search.tunings import Known, ObservedGain, Tunings
from dvk.skills import Library, query_from_graph
from dvk.skills.graphs import NUM_RANKED, QUERY_TERMS
from dvk.skills.searched import add as add_searched
from dvk.skills.searched import with_searched
from dvk.target import Target

FIRST_VERDICT_S = 30.0
"""Longest wait for the first verdict if budget_s is less: it includes starting the judge."""

KNOWN = "tunings.jsonl"
ADVICE = "skills.jsonl"
"""What a search knew when it began, of schedules and of skills."""


class SearchSession(JudgedCandidates):
    """One search.

    Args:
        run: an open run; verdicts go there as they come.
        recorded: verdicts of an earlier process of this run.
        backbone: the language model, for strategies that ask one.
        library: the skills' file; None takes the default one.
        baselines: also timed when the best is confirmed.
        folder: for the search's own files, inside the run's; ends in `/`, empty for the run's folder itself.
        first: the finished search for another set of inputs of the same module: this one starts from its results.
        seeds: the user's candidates, judged first.
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
        seeds: Sequence[Candidate] = (),
    ):
        self.run, self.task, self.backend, self.config = run, task, backend, config
        self.library, self.backbone = library, backbone
        self.baselines = [b for b in baselines if b != "eager"]
        self.folder, self.first, self.seeds = folder, first, tuple(seeds)
        self.rolls = takes_time_loops(backend)
        """Whether loops over time steps may be one operator of the graph."""
        self.joined = False
        """Whether its result is joined with those of other sets of inputs."""
        self.court = open_session(task, config, self._spec)
        self.turns: list[Turn] = list(recorded)
        self.traces: list[Trace] = []
        """Conversations with the model, as the strategy keeps them."""
        self.bounds = ReferenceBounds(run, task, config, self.turns)
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
        self.proposed: tuple[Skill, ...] = ()
        """What a summary of it would add to the library."""
        self.observed: list[ObservedGain] = []
        """The search's findings about schedules."""
        self.left_out: dict[str, str] = {}
        """Why a candidate that the search meant to judge was not judged, by its title."""
        self.uncaptured: str | None = None
        """Why there is no operator graph, if there is none."""
        self.reason: str | None = None
        self.unjudged: str | None = None
        """Why the search ended before its first verdict, if it did."""
        self.interrupted = False
        self.ended: str | None = None
        """Why the search ended before its time, if it did."""
        self.expected: TimeEstimate | None = None
        """Estimate of the command's time, if known."""
        self.capture_s = 0.0
        self.confirm_by: float | None = None
        """Deadline of confirming, on time.monotonic's clock, except the first candidate's first look; set when it begins."""
        self.failure: ModelError | None = None
        """The error that ended the model's part of the search."""

    @property
    def with_lines(self) -> bool:
        """Whether PyTorch's own lines are candidates; a drop-in for several sets of inputs cannot hold them."""
        return not (self.config.optimize.own_kernels or self.joined)

    @property
    def prose(self) -> bool:
        """Whether a model reads bounds and profiles."""
        return self.backbone is not None and isinstance(
            dialects.get(self.backbone.dialect), dialects.ProseDialect
        )

    @property
    def _spec(self) -> JudgeSpec:
        return JudgeSpec(brief=True, contract="short", profile="written" if self.prose else False)

    @property
    def search_left_s(self) -> float:
        """Seconds that the search may still take: none once it has ended."""
        return 0.0 if self.ended is not None else self.left_s

    @property
    def graph(self) -> Graph | None:
        return self.captured.graph if self.captured else None

    def judge_with(self, task: Task) -> None:
        """Judge with another form of the task from now on, such as other shapes."""
        self.court.close()
        self.court = open_session(task, self.config, self._spec)

    # -------------------------------------------------------------- searching

    def search(self, strategy: Strategy, live: SearchView) -> None:
        """Feed the strategy with verdicts until it, the time or the user ends it."""
        live.resumed(self.turns)
        try:
            live.stage("capturing the operator graph")
            before = time.monotonic()
            self.captured = self._capture(live)
            self.skills = self._retrieve()
            if self.prose:
                live.stage("profiling the reference")
                self.bounds.measure(self.graph)
            self.capture_s = time.monotonic() - before
            if summary.in_train_mode(self.captured, self.task):
                live.note(summary.in_train_mode(self.captured, self.task))
            live.stage("searching")
            self.began = time.monotonic() - self.elapsed_before
            problem = self._problem(live)
            if self.seeds:
                strategy = seeded.first(strategy)
            if self.with_lines:
                strategy = pytorch_lines.beside(strategy)
            try:
                self._feed(strategy(problem), live)
            finally:
                self._learn(problem)
        except CapReached as error:
            self._warned(live)(error)
        except ModelError as error:
            if not self.turns:
                raise
            self._warned(live)(error)
        except CannotCompose as error:
            self.uncaptured = self.uncaptured or f"the composer cannot capture this module: {error}"
            if not self.promising:
                self.reason = self.uncaptured
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
        if isinstance(self.failure, CapReached):
            self._capped(self.failure)
        elif self.failure is not None and not self.turns:
            raise self.failure

    def _capped(self, cap: CapReached) -> None:
        """The cap ended the model's part; it is why nothing faster was found, if nothing was."""
        self.ended = self.ended or cap.message
        if not self.promising and self.reason is None:
            self.reason = cap.message

    def _problem(self, live: SearchView) -> SearchProblem:
        if (model := self.backbone) is not None:
            model.clock, model.left = lambda: self.elapsed_s, lambda: self.search_left_s
            model.on_ask = lambda number: live.asking(model.name, number)
        known, device = self._known()
        return SearchProblem(
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
            lambda: self.search_left_s,
            self.left_out.__setitem__,
            self.bounds.latest,
            tuple(Turn(candidate=candidate) for candidate in self.seeds),
        )

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

    def _known(self) -> tuple[Known, Target]:
        """This machine's knowledge of schedules of the graph's kernels, and the device; a resumed search has what it began with."""
        if self.captured is None:
            return {}, target.DEFAULT
        if before := self.run.read(self.folder + KNOWN):
            return tunings.loaded(before[0]), target.loaded(before[1:])
        every = tuple(
            applicable_to(
                self.captured, self.task.device, self.backend, inexact=self.config.optimize.inexact
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
            if self.config.library.learn and tried and self.skills:
                self._add_evidence(problem, tried)

    def _add_evidence(
        self, problem: SearchProblem, tried: Sequence[tuple[Candidate, Verdict]]
    ) -> None:
        """Record what the search measured of skills, for later ones."""
        facts = Planner(problem).advisers.facts
        gains = searched(self.task, self.backend, facts, tried, self.skills)
        with suppress(LibraryError), Library.open(self.library) as library:
            add_searched(library, self._device, self.backend, self.task.id, gains)

    def _tunings(self) -> Tunings:
        return Tunings(self._device, self.backend)

    @property
    def _device(self) -> str:
        return device_of(self.config, self.task.device)

    def _capture(self, live: SearchView) -> CapturedGraph | None:
        """The operator graph; None if there is none and the model can do without."""
        try:
            return capture(self.task, self.config.limits, self.rolls)
        except CannotCompose as error:
            if self.with_lines and self.backbone is None:
                self.uncaptured = f"the composer cannot capture this module: {error}"
                live.note(self.uncaptured)
                return None
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
                    if None in verdicts or self.ended is not None:
                        break  # the time limit is reached, or nothing is left to gain
            finally:
                proposals.close()

    def _judge(self, batch: Sequence[Candidate], live: SearchView) -> list[Verdict | None]:
        verdicts: list[Verdict | None] = [self.known.get(c.id) for c in batch]
        missing = [i for i, v in enumerate(verdicts) if v is None]
        left = self.search_left_s
        if not self.turns:
            # However small the budget, the first candidate is worth a verdict.
            expected_s = self.expected.first if self.expected is not None else 0.0
            left = max(left, FIRST_VERDICT_S, clock.SLOW_FIRST * expected_s)
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
            if (why := limits.at_roofline(self.turns[-1:])) is not None:
                self.ended = why
                live.note(f"the search ends: {why}")
                break
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
            found = {
                hit.name: hit.skill for hit in library.search(query, NUM_RANKED, snippets=False)
            }
            if not self.config.library.learn:
                return tuple(found.values())
            if before := self.run.read(self.folder + ADVICE):  # a resumed search
                return tuple(Skill.model_validate(skill) for skill in before[0]["skills"])
            known = {**found, **{s.name: s for s in library.advising() if s.name not in found}}
            skills = with_searched(library, known.values(), self._device, self.backend)
            said = [skill.model_dump(mode="json") for skill in skills]
            self.run.append(self.folder + ADVICE, {"skills": said})
            return tuple(skills)
