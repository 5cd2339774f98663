"""`dvk optimize`: from a user's module to a verified, faster drop-in.

    examine the task → capture its graph → ask the library for skills → let a strategy propose,
    the judge decide → confirm the best in a fresh process → best.py, report, episode

Every verdict is on disk before the next candidate is tried, so a killed run resumes by replaying
the strategy on what is recorded. Ctrl-C ends the search and keeps the best so far.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk import harness, registry, search, tasks
from dvk.composer import CannotCompose, Captured, capture, fuse
from dvk.config import Config
from dvk.errors import MachineError, UsageError
from dvk.harness import backends
from dvk.pipelines import report
from dvk.pipelines.live import Live
from dvk.records import Backend, Candidate, Episode, Graph, Skill, Task, Trace, Turn, Verdict
from dvk.runs import RunFolder
from dvk.skills import Library, query_from_graph

TURNS = "turns.jsonl"
NUM_CONFIRMED = 3
"""Candidates confirmed at most: the search's favourite is lucky now and then, the third hardly."""


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    spec: str
    inputs: tuple[str, ...] = ()
    init: tuple[str, ...] = ()
    eval_mode: bool = False
    dtype: str | None = None
    device: str | None = None
    backend: str = "auto"
    strategy: str = "auto"
    baselines: tuple[str, ...] = ()
    library: Path | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()
    quiet: bool = False


def optimize(request: Request, config: Config) -> dict[str, Any]:
    """Run the command; the returned summary is what `--json` prints.

    Raises:
        DvkError: the user can fix it.
    """
    device = request.device or backends.default_device()
    if device == "cuda" and backends.default_device() != "cuda":
        raise MachineError("no CUDA device was found", "use --device cpu, or check the driver with nvidia-smi")
    backend = backends.pick(request.backend, device)
    strategy = registry.resolve(search.AUTO if request.strategy == "auto" else request.strategy, search.STRATEGIES, "strategy")
    name = request.spec.rpartition("/")[2].replace(".py", "").replace(":", "-")
    task = tasks.load(request.spec, inputs=request.inputs, init=request.init, eval_mode=request.eval_mode, dtype=request.dtype,
                      device="cuda" if device == "cuda" else "cpu", limits=config.limits)
    with RunFolder.open(request.out, command="optimize", name=name, argv=request.argv, config=config, resume=request.resume) as run:
        known = run.read("task.jsonl")
        if known and known[0]["id"] != task.id:
            raise UsageError(f"`{run.path}` holds a search of another version of `{request.spec}`", "choose another --out")
        if run.finished:
            return dict(run.read("summary.jsonl")[-1])
        if not known:
            run.append("task.jsonl", task)
        recorded = [Turn.model_validate(t) for t in run.read(TURNS)]
        session = Session(run, task, backend, config, request, recorded)
        with session.court, Live(config.optimize.budget_s, name=task.name, quiet=request.quiet, elapsed_s=session.elapsed_before) as live:
            session.search(strategy, live)
            winner = session.confirm(live)
        return session.finish(winner)


class Session:
    """One search: its records so far and the machinery around a strategy."""

    def __init__(self, run: RunFolder, task: Task, backend: Backend, config: Config, request: Request, recorded: Sequence[Turn]):
        self.run, self.task, self.backend, self.config, self.request = run, task, backend, config, request
        self.court = harness.Court(task, config, brief=True)
        self.turns: list[Turn] = list(recorded)
        self.known = {t.candidate.id: t.verdict for t in recorded if t.candidate and t.verdict and t.verdict.tier != "claim"}
        self.elapsed_before = max((t.elapsed_s for t in recorded), default=0.0)
        self.began = time.monotonic() - self.elapsed_before
        self.captured: Captured | None = None
        self.skills: tuple[Skill, ...] = ()
        self.reason: str | None = None
        self.interrupted = False

    @property
    def graph(self) -> Graph | None:
        return self.captured.graph if self.captured else None

    # -------------------------------------------------------------- searching

    def search(self, strategy: search.Strategy, live: Live) -> None:
        """Feed the strategy with verdicts until it, the time or the user ends it."""
        try:
            live.stage("capturing the operator graph")
            self.captured = capture(self.task, self.config.limits)
            self.skills = retrieve(self.captured.graph, self.request.library, self.config)
            live.stage("searching")
            self.began = time.monotonic() - self.elapsed_before
            problem = search.Problem(self.task, self.captured, self.backend, self.skills, self.config)
            proposals = strategy(problem)
            batch = next(proposals, None)
            while batch is not None:
                verdicts = self._judge(batch, live)
                if all(v is None for v in verdicts) and batch:
                    break
                try:
                    batch = proposals.send(verdicts)
                except StopIteration:
                    break
        except CannotCompose as error:
            self.reason = f"the composer cannot capture this module: {error}"
        except KeyboardInterrupt:
            self.interrupted = True
            self.reason = "stopped by the user"

    def _judge(self, batch: Sequence[Candidate], live: Live) -> list[Verdict | None]:
        verdicts: list[Verdict | None] = [self.known.get(c.id) for c in batch]
        missing = [i for i, v in enumerate(verdicts) if v is None]
        left = self.config.optimize.budget_s - self._elapsed()
        if not missing or left <= 0:
            return verdicts

        if not self.turns:
            # However small the budget, the first candidate is worth a verdict.
            left = max(left, self.config.judge.candidate_s)
        deadline = time.monotonic() + left
        for i in missing:
            if time.monotonic() >= deadline:
                break
            live.trying(batch[i].title)
            verdict = self.court.judge(batch[i], "search", deadline=deadline)
            if verdict is None:
                break
            verdicts[i] = verdict
            self._record(batch[i], verdict, live)
        return verdicts

    def _record(self, candidate: Candidate, verdict: Verdict, live: Live) -> None:
        turn = Turn(candidate=candidate, verdict=verdict, elapsed_s=self._elapsed())
        self.turns.append(turn)
        self.known[candidate.id] = verdict
        self.run.append(TURNS, turn)
        live.judged(turn)

    def _elapsed(self) -> float:
        return time.monotonic() - self.began

    # -------------------------------------------------------------- confirming

    def confirm(self, live: Live) -> Turn | None:
        """The winner, judged again in a fresh process at the claim tier; None when nothing holds."""
        # What did not even look faster in the search is not worth minutes of confirming.
        timed = [t for t in self.turns if t.verdict and t.verdict.timing and t.verdict.tier == "search" and speedup(t) > 1]
        ranked = sorted(timed, key=lambda t: -speedup(t))[:NUM_CONFIRMED]
        baselines = [b for b in self.request.baselines if b != "eager"]
        best: Turn | None = None
        for turn in ranked:
            assert turn.candidate is not None and turn.verdict is not None
            live.stage("confirming the best in fresh processes")
            try:
                verdict = self.court.judge(turn.candidate, "claim", baselines)
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

    # -------------------------------------------------------------- ending

    def finish(self, winner: Turn | None) -> dict[str, Any]:
        """Write best.py, the episode and the report; return the summary."""
        faster = winner is not None and winner.verdict is not None and winner.verdict.faster
        candidate = winner.candidate if winner is not None and faster else None
        best_path = str(self.run.write_text("best.py", candidate.source)) if candidate else None
        summary = self._summary(winner, faster, best_path)
        episode = Episode(task=self.task, traces=(Trace(role="policy", skills=tuple(s.name for s in self.skills),
                                                        turns=tuple(self.turns)),))
        self.run.write_text("episodes/optimize.jsonl", episode.model_dump_json() + "\n")
        report.write(self.run, episode, summary, best_source=candidate.source if candidate else None, graph=self.graph,
                     skills={s.name: s for s in self.skills})
        self.run.append("summary.jsonl", summary)
        if not self.interrupted:
            self.run.finish("done")
        return summary

    def _summary(self, winner: Turn | None, faster: bool, best_path: str | None) -> dict[str, Any]:
        timing = winner.verdict.timing if winner is not None and winner.verdict is not None else None
        eager = None if timing is None else {"ms": timing.reference_ms, "speedup": timing.speedup.value, "lo": timing.speedup.lo,
                                             "hi": timing.speedup.hi}
        others = {} if timing is None else {
            name: {"ms": timing.baselines_ms[name], "speedup": s.value, "lo": s.lo, "hi": s.hi} for name, s in timing.baselines.items()}
        ok = [t for t in self.turns if t.verdict is not None and t.verdict.status.value == "ok"]
        status = "faster" if faster else "failed" if self.turns and not ok else "no_speedup"
        reason = self.reason
        if reason is None and status == "no_speedup":
            reason = ok[0].verdict.untimed_reason if ok and ok[0].verdict and ok[0].verdict.untimed_reason else self._refuted()
        if status == "failed" and reason is None:
            reason = "no candidate agreed with the reference"
        return {
            "status": status, "speedup": eager and eager["speedup"], "speedup_lo": eager and eager["lo"],
            "speedup_hi": eager and eager["hi"], "baselines": {"eager": eager, **others}, "best": best_path, "run": str(self.run.path),
            "seconds": round(self._elapsed(), 2), "num_candidates": len({t.candidate.id for t in self.turns if t.candidate}),
            "title": winner.candidate.title if winner and winner.candidate else None,
            "recipes": list(winner.candidate.recipes) if winner and winner.candidate else [],
            "skills": list(winner.candidate.skills) if winner and winner.candidate else [],
            "reason": reason, "groups": self._groups(winner),
        }

    def _refuted(self) -> str:
        """Why nothing is claimed, when candidates were timed."""
        timed = [t.verdict for t in self.turns if t.verdict is not None and t.verdict.timing is not None]
        claims = [v.timing.speedup for v in timed if v.tier == "claim" and v.timing]
        hopeful = [v.timing.speedup for v in timed if v.tier == "search" and v.timing and v.faster]
        if claims and hopeful:
            best = max(hopeful, key=lambda s: s.value)
            return f"the search's best, {best}, did not hold when timed again: {claims[-1]}"
        return "no candidate's interval lies above 1"

    def _groups(self, winner: Turn | None) -> list[str]:
        if self.captured is None or winner is None or winner.candidate is None:
            return []
        return [f"{k.name}: {k.summary} ({k.num_rows:,} × {k.row_length:,})"
                for k in fuse(self.task, self.captured, winner.candidate.recipes).ordered]


def retrieve(graph: Graph, path: Path | None, config: Config) -> tuple[Skill, ...]:
    """Skills the library ranks for the graph, best first."""
    with Library.open(path) as library:
        query = query_from_graph(graph, library, config.optimize.query_terms)
        return tuple(hit.skill for hit in library.search(query, config.optimize.num_skills, snippets=False))


def speedup(turn: Turn) -> float:
    """Speedup over eager by the turn's own timing; 0 without one."""
    return turn.verdict.timing.speedup.value if turn.verdict is not None and turn.verdict.timing is not None else 0.0
