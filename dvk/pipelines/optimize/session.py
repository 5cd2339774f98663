"""One search of `dvk optimize`: its records so far, and the machinery around a strategy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.agents import Subject, dialects, selection
from dvk.backbone.brake import OutOfTime
from dvk.backbone.recorded import Recorded
from dvk.composer import CannotCompose, Captured, applicable, capture, fuse
from dvk.composer.recipes import OWN_FAMILIES
from dvk.config import Config
from dvk.harness.blocks import block_times
from dvk.harness.courts import open_court
from dvk.pipelines import report
from dvk.pipelines.live import Live
from dvk.pipelines.optimize import blocks, told
from dvk.records import Backend, Candidate, Graph, Skill, Task, Trace, Turn, Verdict
from dvk.runs import RunFolder
from dvk.search import Problem, Proposals, Strategy, classes, tunings
from dvk.search.tunings import Known, Tunings
from dvk.skills import Library, query_from_graph

TURNS = "turns.jsonl"
KNOWN = "tunings.jsonl"
NUM_CONFIRMED = 3
"""Candidates confirmed at most: the search's favourite is lucky now and then, the third hardly."""


class Session:
    """One search.

    Args:
        run: an open run; verdicts go there as they come.
        recorded: what an earlier process of this run judged.
        backbone: the language model, for strategies that ask one.
        library: the skills' file; None takes the default one.
        baselines: also timed when the best is confirmed.
    """

    def __init__(
        self, run: RunFolder, task: Task, backend: Backend, config: Config, recorded: Sequence[Turn], backbone: Recorded | None = None,
        *, library: Path | None = None, baselines: Sequence[str] = (),
    ):
        self.run, self.task, self.backend, self.config = run, task, backend, config
        self.library, self.baselines, self.backbone = library, [b for b in baselines if b != "eager"], backbone
        self.court = open_court(task, config, brief=True)
        self.turns: list[Turn] = list(recorded)
        self.traces: list[Trace] = []
        """Conversations with the model, as the strategy keeps them."""
        self.known = {t.candidate.id: t.verdict for t in recorded if t.candidate and t.verdict and t.verdict.tier != "claim"}
        calls = backbone.calls if backbone is not None else []
        self.elapsed_before = max([0.0, *(t.elapsed_s for t in recorded), *(call.elapsed_s for call in calls)])
        self.began = time.monotonic() - self.elapsed_before
        self.captured: Captured | None = None
        self.skills: tuple[Skill, ...] = ()
        self.reason: str | None = None
        self.interrupted = False

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

    def search(self, strategy: Strategy, live: Live) -> None:
        """Feed the strategy with verdicts until it, the time or the user ends it."""
        live.resumed(self.turns)
        try:
            live.stage("capturing the operator graph")
            self.captured = self._capture(live)
            self.skills = self._retrieve()
            live.stage("searching")
            self.began = time.monotonic() - self.elapsed_before
            if (model := self.backbone) is not None:
                model.clock, model.left = lambda: self.elapsed_s, lambda: self.left_s
                model.on_ask = lambda number: live.asking(model.name, number)
            problem = Problem(self.task, self.captured, self.backend, self.skills, self.config, self.backbone,
                              self.traces.append, self._known())
            try:
                self._feed(strategy(problem), live)
            finally:
                self._learn(problem)
        except CannotCompose as error:
            self.reason = f"the composer cannot capture this module: {error}"
        except KeyboardInterrupt:
            self.interrupted = True
            self.reason = "stopped by the user"
        finally:
            if self.backbone is not None:
                self.backbone.close()

    def _known(self) -> Known:
        """What this machine knows of the schedules of the graph's kernels; a search that goes on knows what it knew when it began."""
        if self.captured is None:
            return {}
        if before := self.run.read(KNOWN):
            return tunings.loaded(before[0])
        every = tuple(applicable(self.captured.graph, self.task.device, self.backend))
        plans = (every, tuple(name for name in every if name not in OWN_FAMILIES))
        kernels = [kernel for recipes in plans for kernel in fuse(self.task, self.captured, recipes).ordered]
        known = self._tunings().known(map(classes.class_of, kernels))
        self.run.append(KNOWN, tunings.dumped(known))
        return known

    def _learn(self, problem: Problem) -> None:
        """Keep what was measured of schedules for the searches to come."""
        if self.captured is not None:
            tried = [(t.candidate, t.verdict) for t in self.turns if t.candidate and t.verdict and t.candidate.proposer == "composer"]
            self._tunings().learn(self.task.id, classes.observed(problem, tried))

    def _tunings(self) -> Tunings:
        return Tunings(self.config.remote.judge or self.config.remote.engine or machine.fingerprint(self.task.device), self.backend)

    def _capture(self, live: Live) -> Captured | None:
        """The operator graph; None where there is none and the model can do without."""
        try:
            return capture(self.task, self.config.limits)
        except CannotCompose as error:
            if self.backbone is None or dialects.get(self.backbone.dialect).reads_graph:
                raise
            live.note(f"no operator graph, so the composer has nothing to propose: {error}")
            return None

    def _feed(self, proposals: Proposals, live: Live) -> None:
        with suppress(OutOfTime):
            try:
                batch = next(proposals, None)
                while batch is not None:
                    verdicts = self._judge(batch, live)
                    try:
                        batch = proposals.send(verdicts)
                    except StopIteration:
                        break
                    if None in verdicts:  # time is over
                        break
            finally:
                proposals.close()

    def _judge(self, batch: Sequence[Candidate], live: Live) -> list[Verdict | None]:
        verdicts: list[Verdict | None] = [self.known.get(c.id) for c in batch]
        missing = [i for i, v in enumerate(verdicts) if v is None]
        left = self.left_s
        if not self.turns:
            # However small the budget, the first candidate is worth a verdict.
            left = max(left, self.config.judge.candidate_s)
        if not missing or left <= 0:
            return verdicts

        deadline = time.monotonic() + left
        for i in missing:
            if (known := self.known.get(batch[i].id)) is not None:  # the same twice in one batch
                verdicts[i] = known
                continue
            if time.monotonic() >= deadline:
                break
            live.trying(batch[i].title, batch[i].proposer if self.backbone is not None else "")
            verdict = self.court.judge(batch[i], "search", deadline=deadline)
            if verdict is None:
                break
            verdicts[i] = verdict
            self._record(batch[i], verdict, live)
        return verdicts

    def _record(self, candidate: Candidate, verdict: Verdict, live: Live) -> None:
        turn = Turn(candidate=candidate, verdict=verdict, elapsed_s=self.elapsed_s)
        self.turns.append(turn)
        if verdict.tier != "claim":
            self.known[candidate.id] = verdict
        self.run.append(TURNS, turn)
        live.judged(turn)

    def _retrieve(self) -> tuple[Skill, ...]:
        """Skills the library ranks for the task, best first; for a model by what its agents are trained with."""
        with Library.open(self.library) as library:
            if self.backbone is not None or self.captured is None:
                return tuple(selection.candidates(Subject(self.task, self.captured, self.backend), library, self.config.agents))
            query = query_from_graph(self.captured.graph, library, self.config.optimize.query_terms)
            return tuple(hit.skill for hit in library.search(query, self.config.optimize.num_skills, snippets=False))

    # -------------------------------------------------------------- confirming

    def confirm(self, live: Live) -> Turn | None:
        """The winner, judged again in a fresh process at the claim tier; None when nothing holds."""
        # What did not even look faster in the search is not worth minutes of confirming.
        timed = [t for t in self.turns if t.verdict and t.verdict.timing and t.verdict.tier == "search" and told.speedup(t) > 1]
        ranked = sorted(timed, key=lambda t: -told.speedup(t))[:NUM_CONFIRMED]
        claimed = {t.candidate.id: t for t in self.turns if t.candidate and t.verdict and t.verdict.tier == "claim"}
        best: Turn | None = None
        for turn in ranked:
            assert turn.candidate is not None and turn.verdict is not None
            if (known := claimed.get(turn.candidate.id)) is not None and self._covers(known):  # before the run was killed
                if known.verdict is not None and known.verdict.faster:
                    return known
                continue
            live.stage("confirming the best in fresh processes")
            try:
                verdict = self.court.judge(turn.candidate, "claim", self.baselines)
            except KeyboardInterrupt:
                self.interrupted, self.reason = True, "stopped before the best was confirmed: the search's own figure is given"
                return turn if turn.verdict.faster else None
            assert verdict is not None, "there is no deadline"
            self._record(turn.candidate, verdict, live)
            if verdict.faster:
                best = self.turns[-1]
                break
        if best is None and ranked:
            best = next((t for t in reversed(self.turns) if t.verdict and t.verdict.tier == "claim" and t.verdict.timing), None)
        return best

    def _covers(self, claim: Turn) -> bool:
        """It was timed against all that is asked for."""
        timing = claim.verdict.timing if claim.verdict is not None else None
        return timing is None or set(self.baselines) <= set(timing.baselines)

    # -------------------------------------------------------------- ending

    def finish(self, winner: Turn | None, strategy: str, backbone: str | None) -> dict[str, Any]:
        """Write best.py, the episode and the report; return the summary."""
        faster = winner is not None and winner.verdict is not None and winner.verdict.faster
        candidate = winner.candidate if winner is not None and faster else None
        best_path = str(self.run.write_text("best.py", candidate.source)) if candidate else None
        subject = Subject(self.task, self.captured, self.backend)
        names = [] if self.interrupted else blocks.names(self.captured)
        times = block_times(self.task, names, self.config.limits) if names else {}
        episode = told.episode(subject, self.turns, self.skills, self.traces, self.backbone)
        summary = {
            **told.outcome(self.turns, winner, faster, self.reason, told.unread(episode)),
            "best": best_path, "run": str(self.run.path), "seconds": round(self.elapsed_s, 2),
            "groups": told.groups(subject, winner), "blocks": blocks.rows(subject, winner, times),
            "strategy": strategy, "backbone": backbone,
            "cost": told.cost(self.turns, episode, self.backbone), "proposers": told.proposers(self.turns),
        }
        self.run.write_text("episodes/optimize.jsonl", episode.model_dump_json() + "\n")
        report.write(self.run, episode, summary, best_source=candidate.source if candidate else None, graph=self.graph,
                     skills={s.name: s for s in self.skills})
        self.run.append("summary.jsonl", summary)
        if not self.interrupted:
            self.run.finish("done")
        return summary
