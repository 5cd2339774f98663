"""The second half of `collect`: tasks on which the composer's attempts are executed, and their lessons.

    generate → examine and capture → attempts (usual, led by notes, with a slip) → judge → an episode a task → examples

A task's episode is on disk before the next is counted as done; a killed collect plays only the remaining ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from dvk import crashes, nanolang
from dvk.agents import dialects
from dvk.agents.preparing import prepare
from dvk.agents.task_context import TaskContext
from dvk.agents.teacher.played import Taught, TeacherAttempt, attempts, teach, turn_of
from dvk.composer import CannotCompose
from dvk.config import Config
from dvk.errors import DvkError
from dvk.harness.queue import JudgeQueue, default_contract
from dvk.harness.session.concurrency import by_memory
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.learn.examples import Example, ExampleTask
from dvk.pipelines import tracebacks
from dvk.pipelines.report.counted import WordCount
from dvk.pipelines.sft.collect import DEVICES
from dvk.records import BackendName, Episode, Status, Trace, Turn, Verdict
from dvk.runs import RunFolder
from dvk.taskgen import Generated, generate

EPISODES = "episodes/collect.jsonl"
EXAMPLES = "collect/played/examples.jsonl"
ATTEMPTS = 7
"""Programs executed per task, in addition to two with a mistake."""
IN_FLIGHT = 3
"""Tasks being judged per worker: enough that one is always ready."""


class Playing:
    """One task's attempts and their results."""

    def __init__(self, made: Generated, subject: TaskContext, tried: list[TeacherAttempt]):
        self.made, self.subject, self.tried = made, subject, tried
        self.turns: dict[int, Turn] = {}
        self.tracebacks: list[str] = []

    @property
    def played(self) -> list[tuple[TeacherAttempt, Turn]]:
        return [(attempt, self.turns[number]) for number, attempt in enumerate(self.tried)]

    @property
    def ended(self) -> bool:
        """Whether every attempt has a verdict, or could not be read."""
        return all(t.verdict is not None or t.malformed for t in self.turns.values())

    def episode(self) -> Episode:
        traces = tuple(
            Trace(
                role="policy",
                rollout=place,
                skills=(attempt.skill.name,) if attempt.skill else (),
                turns=(turn,),
            )
            for place, (attempt, turn) in enumerate(self.played)
        )
        return Episode(task=self.subject.task, traces=traces)


def episodes(
    run: RunFolder, config: Config, num_tasks: int, backend: BackendName, workers: int
) -> dict[str, int]:
    """Play `num_tasks` tasks; returns counts over all of them, by the attempts' outcomes and by kind of example.

    Args:
        run: the run's folder.
        config: `seed`, the judge's settings.
        num_tasks: how many, those of an earlier call included.
        backend: back end of the texts; this machine must be able to time it.
        workers: candidates judged at a time, at most; see `at_a_time`.
    """
    workers = at_a_time(backend, workers)
    known, counts = played(run, EPISODES)
    open_: dict[int, Playing] = {}
    dialect = dialects.get("compact")
    queue: JudgeQueue[Any]
    spec = JudgeSpec(contract=default_contract(DEVICES[backend]))
    with WordCount("tasks") as shown, JudgeQueue(workers, config, spec=spec) as queue:
        line = shown.add_task("play", total=num_tasks, completed=len(known))
        coming = prepared(run, config, num_tasks, backend, known, workers)
        following = next(coming, None)
        while following is not None or open_:
            while following is not None and len(open_) < IN_FLIGHT * workers:
                number, playing = following
                following = next(coming, None)
                if playing is None:
                    counts["not_played"] += 1
                    continue
                open_[number] = playing
                submit(number, playing, queue)
            judged: list[tuple[Any, Verdict]] = queue.results(wait=True)
            for (number, place), verdict in judged:
                playing = open_[number]
                playing.turns[place] = playing.turns[place].model_copy(update={"verdict": verdict})
            for number in [n for n, p in open_.items() if p.ended]:
                counts.update(keep(run, open_.pop(number), dialect, config))
                shown.advance(line)
    return dict(counts)


def keep(
    run: RunFolder, playing: Playing, dialect: dialects.Dialect, config: Config
) -> Counter[str]:
    """Write a judged task's examples and its episode to the run; returns counts of both."""
    counts: Counter[str] = Counter()
    rng = random.Random(f"{config.seed} {playing.made.name}")
    taught = crashes.run_guarded(
        "learning from it", lambda *given: list(examples(*given)), playing, rng, dialect, config
    )
    for example in taught if not isinstance(taught, crashes.Crashed) else []:
        run.append(EXAMPLES, example)
        counts[f"kind_{example.kind}"] += 1
    episode = playing.episode()
    run.append(EPISODES, episode)
    crashed = [taught.traceback] if isinstance(taught, crashes.Crashed) else []
    tracebacks.keep(
        run, playing.made.name, [*playing.tracebacks, *crashed, *tracebacks.of_episode(episode)]
    )
    counts.update(tally(episode))
    return counts


def at_a_time(backend: BackendName, workers: int) -> int:
    """Useful number of workers: all on a CPU, and on a GPU as many as its clock and memory serve."""
    if DEVICES[backend] == "cpu":
        return workers
    return min(workers, by_memory())


def prepared(
    run: RunFolder,
    config: Config,
    num_tasks: int,
    backend: BackendName,
    known: set[str],
    workers: int,
) -> Iterator[tuple[int, Playing | None]]:
    """Tasks examined and captured, with their attempts; None for one that this machine cannot play."""
    folder = run.path / "collect" / "tasks"
    folder.mkdir(parents=True, exist_ok=True)
    device = DEVICES[backend]
    wanted = [m for m in generate(config.seed + 1, num_tasks, device=device) if m.name not in known]
    paths = [folder / f"{made.name}.py" for made in wanted]
    for made, path in zip(wanted, paths):
        path.write_text(made.source)
    for number, (made, subject) in enumerate(
        zip(wanted, prepare(paths, device, backend, config, workers=workers))
    ):
        if isinstance(subject, DvkError) or subject.captured is None:
            tracebacks.keep(
                run,
                made.name,
                [
                    getattr(
                        subject if isinstance(subject, DvkError) else subject.cannot,
                        "traceback",
                        "",
                    )
                ],
            )
            yield number, None
            continue
        rng = random.Random(f"{config.seed} {made.name}")
        try:
            tried = attempts(subject, rng, ATTEMPTS)
        except Exception as error:  # noqa: BLE001 - the fence
            tracebacks.keep(
                run,
                made.name,
                []
                if isinstance(error, (DvkError, CannotCompose))
                else [crashes.traceback_text(error)],
            )
            yield number, None
            continue
        yield number, Playing(made, subject, tried)


def submit(number: int, playing: Playing, queue: JudgeQueue[Any]) -> None:
    """Have a task's attempts judged; unparsable ones get the reason as feedback."""
    subject = playing.subject
    assert subject.captured is not None
    for place, attempt in enumerate(playing.tried):
        names = (attempt.skill.name,) if attempt.skill is not None else ()
        try:
            candidate = nanolang.assemble(
                subject.task,
                subject.captured,
                attempt.text,
                subject.backend,
                title=attempt.title,
                skills=names,
            )
        except Exception as error:  # noqa: BLE001 - the fence
            if not isinstance(error, nanolang.ParseError):
                playing.tracebacks.append(crashes.traceback_text(error))
            playing.turns[place] = turn_of(
                attempt, None, None, str(error) or crashes.summary_of(error)
            )
            continue
        playing.turns[place] = turn_of(attempt, candidate, None)
        queue.submit((number, place), subject.task, candidate)


def examples(
    playing: Playing, rng: random.Random, dialect: dialects.Dialect, config: Config
) -> Iterator[Example]:
    """The task's lessons, as examples."""
    made, subject = playing.made, playing.subject
    assert subject.captured is not None
    about = ExampleTask(
        id=subject.task.id,
        name=made.name,
        source=made.source,
        category=made.category,
        level=made.level,
    )
    known: dict[str, str] = {}
    for taught in teach(subject, playing.played, rng, dialect, config.agents):
        example = as_example(taught, about, subject, known.get(taught.improves))
        if example.code and len(example.round_speedups) == 1:
            known.setdefault(example.code, example.id)
        yield example


def as_example(
    taught: Taught, about: ExampleTask, subject: TaskContext, parent: str | None
) -> Example:
    """The example with its measurements.

    Args:
        parent: id of the example with the text that this one improves on.
    """
    assert subject.captured is not None
    verdict: Verdict | None = taught.turn.verdict if taught.turn is not None else None
    timing = verdict.timing if verdict is not None else None
    return Example.new(
        kind=taught.kind,
        messages=taught.messages,
        tools=taught.tools,
        task=about,
        signature=subject.captured.graph.signature(),
        backend=subject.backend if taught.code else "",
        skills=taught.skills,
        chosen=taught.chosen,
        code=taught.code,
        speedup=timing.speedup.value if timing else None,
        lo=timing.speedup.lo if timing else None,
        round_speedups=taught.rounds,
        parent=parent,
        origin="composer",
        verified=verdict is not None and verdict.status is Status.OK,
    )


def played(run: RunFolder, name: str) -> tuple[set[str], Counter[str]]:
    """The names of the tasks whose episodes a file of the run holds, and the counts of their attempts."""
    counts: Counter[str] = Counter()
    known: set[str] = set()
    for row in run.read(name):
        episode = Episode.model_validate(row)
        known.add(episode.task.name)
        counts.update(tally(episode))
    return known, counts


def tally(episode: Episode) -> dict[str, Any]:
    """Counts of an episode's attempts by outcome."""
    result: Counter[str] = Counter({"played": 1})
    for trace in episode.traces:
        for turn in trace.turns:
            result["attempts"] += 1
            result[
                f"status_{turn.verdict.status.value}"
                if turn.verdict is not None
                else "status_malformed"
            ] += 1
    return dict(result)
