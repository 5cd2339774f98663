"""Tasks of a step: the same for every caller, never one twice in a step, seldom one that teaches nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dvk.agents import TaskContext
from dvk.agents.similar_tasks import SimilarTasks
from dvk.composer import CapturedGraph
from dvk.config import Config
from dvk.errors import DvkError
from dvk.pipelines.train import task_sampler
from dvk.pipelines.train.task_sampler import TaskSampler
from dvk.records import Episode, Graph, Node, Status, Task, Trace, Turn, Verdict

CONFIG = Config.model_validate({"seed": 3, "train": {"tasks_per_step": 4}})


def subject(name: str) -> TaskContext:
    task = Task(id=name, name=name, source="x", entry="Model", kind="module")
    graph = Graph(nodes=(Node(name="v0", op="aten.relu.default"),), outputs=None)
    return TaskContext(task, CapturedGraph(graph=graph, arguments=("x",)), "cpp")


def drawing(tmp_path: Path, count: int = 10, **rest: object) -> TaskSampler:
    draw = TaskSampler(CONFIG, "cpp", "cpu", tmp_path, **rest)  # type: ignore[arg-type]  # a test's own keywords
    draw.pool = [subject(f"t{n}") for n in range(count)]
    return draw


def episode(
    of: TaskContext, *rewards: float, status: Status = Status.OK, health: tuple[str, ...] = ()
) -> Episode:
    error = "" if status is Status.OK else "off"
    verdict = Verdict(
        status=status,
        tier="search",
        stage="done" if not error else "check",
        error=error,
        num_checks=1,
        health=health,
        untimed_reason="" if error else "no clock",
    )
    turns = [Turn(reward=reward, verdict=verdict) for reward in rewards]
    return Episode(
        task=of.task,
        traces=tuple(
            Trace(role="policy", rollout=n, turns=(turn,)) for n, turn in enumerate(turns)
        ),
    )


def names(subjects: list[TaskContext]) -> list[str]:
    return [s.task.id for s in subjects]


def steps(draw: TaskSampler, count: int) -> Iterator[list[str]]:
    for step in range(count):
        yield names(draw.step(step))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_sampler, "SKIP_AFTER_FLAT_STEPS", 2)
    monkeypatch.setattr(task_sampler, "TRIAL_TASKS", 3)


def test_a_step_has_no_task_twice_and_a_pass_has_all(tmp_path: Path) -> None:
    found = list(steps(drawing(tmp_path), 25))
    assert all(len(set(step)) == 4 for step in found)
    counts = Counter(name for step in found for name in step)
    assert len(counts) == 10 and max(counts.values()) - min(counts.values()) <= 3
    assert names(drawing(tmp_path, 3).step(0)) != [] and len(drawing(tmp_path, 3).step(0)) == 3, (
        "a small folder is played whole"
    )


def test_tasks_without_signal_are_replaced_by_others(tmp_path: Path) -> None:
    with drawing(tmp_path) as draw:
        held = draw.step(0)
        others = draw.more(0, 3, held)
        assert len(others) == 3 and not {*names(held)} & {*names(others)}
        rest = draw.more(0, 9, [*held, *others])
        assert len({*names(held), *names(others), *names(rest)}) == 10, "there are no more"
        assert draw.more(0, 1, [*held, *others, *rest]) == []


def test_what_teaches_nothing_is_played_seldom_and_comes_back(tmp_path: Path) -> None:
    draw = drawing(tmp_path)
    dull = {"t0", "t1", "t2"}

    def play(count: int, teaches_nothing: set[str]) -> Counter[str]:
        played: Counter[str] = Counter()
        for step in range(count):
            chosen = draw.step(step)
            played.update(names(chosen))
            draw.note(
                [episode(s, 0.5, 0.5 if s.task.id in teaches_nothing else 0.9) for s in chosen],
                chosen,
            )
        return played

    play(10, dull)
    later = play(30, dull)
    lively = [count for name, count in later.items() if name not in dull]
    assert all(0 < later[name] < 0.5 * min(lively) for name in dull)
    play(10, set())
    again = play(30, set())
    assert min(again.values()) > 0.7 * max(again.values())


def test_degenerate_tasks_are_played_once(tmp_path: Path) -> None:
    draw, told = drawing(tmp_path, 5), {}
    remark = ("degenerate: nothing tried tells a real answer from a made-up one",)
    chosen = draw.step(0)
    told = draw.note([episode(s, 0.1, 0.9, health=remark) for s in chosen], chosen)
    assert told == {"dull": 0.0, "degenerate": 4.0} and not draw.earlier.subjects
    assert len(draw.step(1)) == 1 and not set(names(draw.step(2))) & set(names(chosen))
    left = draw.step(3)
    draw.note([episode(s, 0.1, health=remark) for s in left], left)
    with pytest.raises(DvkError, match="every task of the folder is degenerate"):
        draw.step(4)


def test_memory_brings_back_what_would_have_come(tmp_path: Path) -> None:
    draw = drawing(tmp_path)
    for step in range(5):
        chosen = draw.step(step)
        draw.note([episode(s, 0.5, 0.5) for s in chosen], chosen)
    restored = drawing(tmp_path, memory=json.loads(json.dumps(draw.memory())))
    assert restored.earlier.subjects == draw.earlier.subjects
    assert list(steps(restored, 12)) == list(steps(draw, 12))


def test_earlier_tasks_are_those_with_something_right() -> None:
    pool, subjects = SimilarTasks(3), {name: subject(name) for name in "abcdef"}
    pool.add(
        [
            episode(subjects[name], 0.5, status=Status.OK if name in "abce" else Status.MISMATCH)
            for name in "abcde"
        ],
        subjects,
    )
    assert list(pool.subjects) == ["b", "c", "e"]
    pool.add([episode(subjects["b"], 0.5), episode(subjects["f"], 0.5)], subjects)
    assert list(pool.subjects) == ["e", "b", "f"], "what is played again is the latest"


@pytest.mark.slow
def test_generated_tasks_are_the_same_drawn_ahead_or_not(tmp_path: Path) -> None:
    found = []
    for ahead in (True, False):  # the last step of a run draws none ahead
        config = CONFIG.model_copy(
            update={"train": CONFIG.train.model_copy(update={"tasks_per_step": 2})}
        )
        with TaskSampler(
            config, "cpp", "cpu", tmp_path / str(ahead), num_steps=2 if ahead else 1
        ) as draw:
            first = names(draw.step(0))
            draw.num_steps = 2
            found.append([first, names(draw.step(1))])
    assert found[0] == found[1] and all(len(set(step)) == 2 for step in found[0])
