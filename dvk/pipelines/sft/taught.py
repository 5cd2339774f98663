"""A language model as the teacher: it plays generated tasks, the judge decides, and what was right is learned from.

    generate → examine and capture → the three agents' conversations → judge → an episode a task → examples

A task's episode is on disk before its examples; a killed collect plays only the remaining tasks. Answers are kept without their
thoughts: a student learns what to answer, in the prompts of the teacher's dialect.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dvk.agents import TaskContext, run_episodes
from dvk.agents.preparing import prepare
from dvk.agents.reading import visible
from dvk.agents.turns import speedup
from dvk.backbone import open_backbone
from dvk.config import Config
from dvk.errors import DvkError
from dvk.learn.examples import Example, ExampleTask
from dvk.pipelines import tracebacks
from dvk.pipelines.sft.collect import DEVICES
from dvk.pipelines.sft.episodes import played, tally
from dvk.records import BackendName, Episode, Status, Trace, Turn
from dvk.runs import RunFolder
from dvk.skills import Library
from dvk.taskgen import Generated, generate

EPISODES = "episodes/taught.jsonl"
EXAMPLES = "collect/played/taught.jsonl"
SEED = 2
"""Added to the run's seed: other tasks than those that the composer writes and plays."""


def taught(
    run: RunFolder, config: Config, spec: str, num_tasks: int, backend: BackendName, workers: int
) -> dict[str, int]:
    """Have a model play `num_tasks` tasks; returns counts over all of them, by the attempts' outcomes and by kind of example.

    Args:
        spec: the model, as for `open_backbone`.
        num_tasks: how many, those of an earlier call included.

    Raises:
        DvkError: the model cannot be opened or asked.
    """
    model = open_backbone(spec, config)
    known, counts = played(run, EPISODES)
    every = {m.name: m for m in generate(config.seed + SEED, num_tasks, device=DEVICES[backend])}
    wanted = [made for made in every.values() if made.name not in known]
    subjects = _prepared(run, wanted, backend, config, workers)
    with Library.open(None) as library:
        for episode in run_episodes(subjects, model, library, config):
            run.append(EPISODES, episode)
            for example in examples(episode, every[episode.task.name], backend, model.name):
                run.append(EXAMPLES, example)
                counts[f"kind_{example.kind}"] += 1
            tracebacks.keep(run, episode.task.name, tracebacks.of_episode(episode))
            counts.update(tally(episode))
    return dict(counts) | {
        "prompt_tokens": model.usage.prompt_tokens,
        "completion_tokens": model.usage.completion_tokens,
    }


def _prepared(
    run: RunFolder, wanted: list[Generated], backend: BackendName, config: Config, workers: int
) -> Iterator[TaskContext]:
    """The tasks that can be loaded."""
    folder = run.path / "collect" / "tasks"
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for made in wanted:
        paths.append(folder / f"{made.name}.py")
        paths[-1].write_text(made.source)
    for found in prepare(paths, DEVICES[backend], backend, config, workers=workers):
        if not isinstance(found, DvkError):
            yield found


def examples(
    episode: Episode, made: Generated, backend: BackendName, origin: str
) -> Iterator[Example]:
    """What can be learned from a played task: right attempts, the selection that led to the best, the summary of an improvement."""
    about = ExampleTask(
        id=episode.task.id,
        name=made.name,
        source=made.source,
        category=made.category,
        level=made.level,
    )
    policies = [trace for trace in episode.traces if trace.role == "policy" and trace.turns]
    best = max(policies, key=_best, default=None)
    if best is None or not _best(best):
        return
    for trace in policies:
        for place, turn in enumerate(trace.turns):
            verdict = turn.verdict
            if verdict is None or verdict.status is not Status.OK or turn.candidate is None:
                continue
            timing = verdict.timing
            yield Example.new(
                kind="policy_with_skills" if trace.skills else "policy",
                messages=_said(turn),
                task=about,
                signature=made.signature,
                backend=backend,
                skills=trace.skills,
                code=turn.candidate.source,
                speedup=timing.speedup.value if timing else None,
                lo=timing.speedup.lo if timing else None,
                round_speedups=tuple(speedup(one) or None for one in trace.turns[: place + 1]),
                origin=origin,
                verified=True,
            )
    for trace in episode.traces:
        led = trace.role == "selection" and trace.scheme == best.scheme and best.skills
        if not (led or trace.role == "summary"):
            continue
        for turn in trace.turns:
            if turn.malformed is None and turn.messages and turn.completion:
                yield Example.new(
                    kind=trace.role,
                    messages=_said(turn),
                    task=about,
                    signature=made.signature,
                    skills=trace.skills,
                    chosen=turn.chosen,
                    speedup=_best(best),
                    origin=origin,
                    verified=True,
                )


def _said(turn: Turn) -> tuple[dict[str, object], ...]:
    answer = {"role": "assistant", "content": visible(turn.completion).strip()}
    return (*turn.messages, answer)


def _best(trace: Trace) -> float:
    return max((speedup(turn) for turn in trace.turns), default=0.0)
