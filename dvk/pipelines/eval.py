"""`dvk eval`: play every task of a folder with one policy, and say how often it is right and fast.

    read the folder → play each task (a strategy, or the agents on a backbone) → time the winners again → tables

Every episode is on disk as it ends, so a killed run goes on with the tasks that are left. The winner
among several tries was lucky as well as good: where there are several, its time is taken anew, and
only the second counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from dvk import harness, registry, search
from dvk.agents import Subject, play_many
from dvk.agents.judging import Docket, contract_for
from dvk.agents.preparing import prepare
from dvk.backbone import open_backbone
from dvk.config import Config
from dvk.errors import DvkError, UsageError
from dvk.harness import backends
from dvk.records import Backend, Episode, Record, Status, Turn, Verdict
from dvk.rewards import scores
from dvk.rewards.scores import Outcome
from dvk.runs import RunFolder
from dvk.search.play import play
from dvk.skills import Library

EPISODES = "episodes/eval.jsonl"
AGAIN = "again.jsonl"
INDEX = "index.json"
"""In a folder of tasks: a list of objects with `name` and whatever tasks are grouped by (level, category)."""


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    folder: Path
    policy: str = "composer"
    turns: int | None = None
    samples: int = 1
    library: Path | None = None
    no_skills: bool = False
    baselines: tuple[str, ...] = ()
    backend: str = "auto"
    device: str | None = None
    only: tuple[str, ...] = ()
    workers: int | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A file to be played."""

    name: str
    path: Path
    groups: dict[str, str]


class Unplayed(Record):
    """A task that could not be loaded: it counts as failed."""

    name: str
    error: str


def evaluate(request: Request, config: Config) -> dict[str, Any]:
    """Run the command; the returned summary is what `--json` prints.

    Raises:
        DvkError: the user can fix it.
    """
    problems = read_folder(request.folder, request.only)
    device = request.device or backends.default_device()
    backend = backends.pick(request.backend, device)
    name = f"{request.folder.name}-{request.policy.replace('/', '_').replace(':', '-')}"
    with RunFolder.open(request.out, command="eval", name=name, argv=request.argv, config=config, resume=request.resume) as run:
        if run.finished:
            return dict(run.read("summary.jsonl")[-1])
        with Table(len(problems)) as shown:
            episodes = [Episode.model_validate(e) for e in run.read(EPISODES)]
            unplayed = [Unplayed.model_validate(u) for u in run.read("unplayed.jsonl")]
            done = {e.task.name for e in episodes} | {u.name for u in unplayed}
            shown.resumed(len(done))
            left = [p for p in problems if p.name not in done]
            for result in play_all(left, request, config, device, backend):
                if isinstance(result, Unplayed):
                    run.append("unplayed.jsonl", result)
                    unplayed.append(result)
                else:
                    run.append(EPISODES, result)
                    episodes.append(result)
                shown.ended(result)
            again = {(row["task"], row["sample"]): Verdict.model_validate(row["verdict"]) for row in run.read(AGAIN)}
            for row in time_again(episodes, again, request, config):
                run.append(AGAIN, row)
                again[row["task"], row["sample"]] = row["verdict"]
        summary = summarise(problems, episodes, unplayed, again, request)
        summary["run"] = str(run.path)
        run.append("summary.jsonl", summary)
        run.finish("done")
    return summary


# ------------------------------------------------------------------ what is played

def read_folder(folder: Path, only: Sequence[str] = ()) -> list[Problem]:
    """The problems of a folder and its sub-folders, by name; files that begin with `_` are none.

    Raises:
        UsageError: no folder, no Python file in it, an index that cannot be read, or an unknown name in `only`.
    """
    if not folder.is_dir():
        raise UsageError(f"no such folder: `{folder}`", "give a folder of task files, e.g. data/tasks/examples")
    groups: dict[str, dict[str, str]] = {}
    index = folder / INDEX
    if index.is_file():
        try:
            rows = json.loads(index.read_text())
            groups = {row["name"]: {k: v for k, v in row.items() if isinstance(v, str) and k != "name"} for row in rows}
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"cannot read `{index}`: {error}", "it must be a list of objects with a `name`") from None
    problems = []
    for path in sorted(folder.rglob("*.py")):
        if not path.name.startswith("_"):
            level = {"level": path.parent.name} if path.parent != folder else {}
            problems.append(Problem(path.stem, path, {**level, **groups.get(path.stem, {})}))
    if not problems:
        raise UsageError(f"no task files in `{folder}`", "task files are Python files in KernelBench's format")
    unknown = set(only) - {p.name for p in problems}
    if unknown:
        raise UsageError(f"no task `{min(unknown)}` in `{folder}`", "name files without .py")
    return [p for p in problems if not only or p.name in only]


def subjects(problems: Sequence[Problem], config: Config, device: str, backend: Backend) -> Iterator[Subject | Unplayed]:
    """Tasks examined and captured, a few ahead of whoever asks."""
    found = prepare([p.path for p in problems], device, backend, config, kept=True)  # type: ignore[arg-type]  # checked by the command
    for problem, subject in zip(problems, found):
        yield Unplayed(name=problem.name, error=subject.message) if isinstance(subject, DvkError) else subject


def play_all(problems: Sequence[Problem], request: Request, config: Config, device: str, backend: Backend) -> Iterator[Episode | Unplayed]:
    """Every problem's episode as it ends."""
    bad: list[Unplayed] = []

    def good() -> Iterator[Subject]:
        for subject in subjects(problems, config, device, backend):
            if isinstance(subject, Unplayed):
                bad.append(subject)
            else:
                yield subject

    workers = request.workers or config.rollout.judges
    judging: Docket[Any]
    if request.policy in search.STRATEGIES:
        with Docket(workers, config, baselines=request.baselines, contract=contract_for(device)) as judging:
            yield from play_strategy(good(), request, config, judging)
    else:
        backbone = open_backbone(request.policy, config, device=request.device)
        played = config.model_copy(update={"rollout": config.rollout.model_copy(update=rollout_of(request))})
        library = None if request.no_skills or request.library is None else Library.open(request.library)
        with Docket(workers, played, baselines=request.baselines, contract=contract_for(device)) as judging:
            yield from play_many(good(), backbone, library, played, judging=judging)
    yield from bad


def rollout_of(request: Request) -> dict[str, Any]:
    """Rollout settings of an evaluation: one selection of skills where there is a library, nothing summarised; one sample is greedy."""
    asked: dict[str, Any] = {"schemes": 1, "null_scheme": False, "rollouts": request.samples, "summaries": 0}
    if request.turns is not None:
        asked["turns"] = request.turns
    if request.samples == 1:
        asked["temperature"] = 0.0
    return asked


def play_strategy(subjects: Iterable[Subject], request: Request, config: Config, judging: Docket[Any]) -> Iterator[Episode]:
    """A strategy on every task; `--turns` × `--samples` candidates each."""
    strategy = registry.resolve(request.policy, search.STRATEGIES, "policy")
    empty = []

    def problems() -> Iterator[search.Problem]:
        for subject in subjects:
            if subject.captured is None:
                empty.append(Episode(task=subject.task))
                continue
            skills = () if request.no_skills else retrieve(subject, request.library, config)
            yield search.Problem(subject.task, subject.captured, subject.backend, skills, config)

    yield from play(problems(), strategy, judging, limit=(request.turns or 1) * request.samples)
    yield from empty


def retrieve(subject: Subject, path: Path | None, config: Config) -> tuple[Any, ...]:
    """Skills for a strategy's order of recipes."""
    from dvk.skills import query_from_graph

    assert subject.captured is not None
    with Library.open(path) as library:
        query = query_from_graph(subject.captured.graph, library, config.optimize.query_terms)
        return tuple(hit.skill for hit in library.search(query, config.optimize.num_skills, snippets=False))


# ------------------------------------------------------------------ what it came to

def tries(episode: Episode) -> list[list[Turn]]:
    """The turns of every sample: of each policy conversation."""
    return [list(trace.turns) for trace in episode.traces if trace.role == "policy"]


def winner(turns: Sequence[Turn]) -> Turn | None:
    """The fastest right turn; None when none was timed."""
    timed = [t for t in turns if t.verdict is not None and t.verdict.timing is not None]
    return max(timed, key=lambda t: t.verdict.timing.speedup.value, default=None)  # type: ignore[union-attr]  # timed


def time_again(episodes: Sequence[Episode], known: dict[tuple[str, int], Verdict], request: Request,
               config: Config) -> Iterator[dict[str, Any]]:
    """Judge every sample's winner among several turns anew."""
    wanted = []
    for episode in episodes:
        for sample, turns in enumerate(tries(episode)):
            best = winner(turns)
            if len(turns) > 1 and best is not None and (episode.task.name, sample) not in known:
                wanted.append((episode.task, sample, best.candidate))
    jobs = [(task, candidate) for task, _, candidate in wanted if candidate is not None]
    pool = harness.Pool(request.workers or config.rollout.judges, config)
    contract = contract_for(jobs[0][0].device if jobs else "cpu")
    for position, verdict in pool.map(jobs, baselines=request.baselines, contract=contract):
        task, sample, _ = wanted[position]
        yield {"task": task.name, "sample": sample, "verdict": verdict}


def outcome(task: str, verdict: Verdict | None, groups: dict[str, str], baseline: str | None = None) -> Outcome:
    """A verdict as an outcome, over eager or another baseline."""
    correct = verdict is not None and verdict.status is Status.OK
    timing = verdict.timing if verdict is not None else None
    speedup = None if timing is None else timing.speedup if baseline is None else timing.baselines.get(baseline)
    return Outcome(task, correct, speedup.value if speedup else None, speedup.lo if speedup else None, groups)


def summarise(problems: Sequence[Problem], episodes: Sequence[Episode], unplayed: Sequence[Unplayed],
              again: dict[tuple[str, int], Verdict], request: Request) -> dict[str, Any]:
    """All tables.

    Returns:
        `fast_p` and what `scores.summary` gives: the mean over samples of what a sample came to in all its turns;
        `first_turn`, `best_of` (the best sample of each task), `by_turn`; `groups` by level, category, …;
        `compile` where that baseline was timed; `failed` tasks with the reason.
    """
    groups = {p.name: p.groups for p in problems}
    finals: list[tuple[str, Verdict | None]] = []
    by_turn: dict[int, list[Outcome]] = {}
    failed = {u.name: u.error for u in unplayed}
    for episode in episodes:
        name = episode.task.name
        samples = tries(episode) or [[]]
        for sample, turns in enumerate(samples):
            best = winner(turns)
            right = next((t.verdict for t in turns if t.verdict is not None and t.verdict.status is Status.OK), None)
            finals.append((name, again.get((name, sample)) or (best.verdict if best else right)))
            for length in range(1, max(1, request.turns or len(turns)) + 1):
                so_far = winner(turns[:length])
                ok = next((t.verdict for t in turns[:length] if t.verdict is not None and t.verdict.status is Status.OK), None)
                by_turn.setdefault(length, []).append(outcome(name, so_far.verdict if so_far else ok, groups.get(name, {})))
        if not any(v is not None and v.status is Status.OK for n, v in finals if n == name):
            failed[name] = reason(samples)
    finals += [(u.name, None) for u in unplayed]
    outcomes = [outcome(n, v, groups.get(n, {})) for n, v in finals]
    dimensions = sorted({d for g in groups.values() for d in g if len({x.get(d) for x in groups.values()}) <= 12})
    found = {
        **scores.summary(outcomes), "policy": request.policy, "samples": request.samples, "turns": request.turns,
        "first_turn": scores.summary(by_turn.get(1, [])), "best_of": scores.summary(scores.best(outcomes)),
        "by_turn": {str(t): scores.summary(o)["fast_p"] for t, o in sorted(by_turn.items())},
        "groups": {d: scores.by_group(outcomes, d) for d in dimensions}, "failed": dict(sorted(failed.items())),
    }
    for baseline in request.baselines:
        if baseline != "eager":
            found[baseline] = scores.summary([outcome(n, v, groups.get(n, {}), baseline) for n, v in finals])
    found["fast_p_compile"] = found["compile"]["fast_p"] if "compile" in found else None
    return found


def reason(samples: Sequence[Sequence[Turn]]) -> str:
    """Why a task has no right candidate: the last thing that was said of it."""
    for turns in samples:
        for turn in reversed(turns):
            if turn.verdict is not None and turn.verdict.error:
                return f"{turn.verdict.status.value}: {turn.verdict.error.splitlines()[0][:200]}"
            if turn.malformed:
                return f"malformed: {turn.malformed[:200]}"
    return "the module's operators cannot be captured"


class Table:
    """Lines on stderr as tasks end."""

    def __init__(self, total: int):
        self.console = Console(file=sys.stderr, highlight=False, emoji=False)
        self.total, self.count = total, 0

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None: ...

    def resumed(self, count: int) -> None:
        """So many were done before."""
        self.count = count
        if count:
            self.console.print(f"{count} of {self.total} tasks were done before")

    def ended(self, result: Episode | Unplayed) -> None:
        """One more."""
        self.count += 1
        if isinstance(result, Unplayed):
            said = f"{result.name}: {result.error}"
        else:
            best = winner([t for turns in tries(result) for t in turns])
            timing = best.verdict.timing if best is not None and best.verdict is not None else None
            said = f"{result.task.name}: {timing.speedup if timing is not None else reason(tries(result))}"
        self.console.print(f"[{self.count}/{self.total}] {said}", markup=False)
