"""Learning from a table of measured plans, without a clock: what is imitated, and what a fitted model earns on the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk import tasks
from dvk.agents.dialects.plan import space_of
from dvk.agents.task_context import TaskContext
from dvk.backbone import open_backbone
from dvk.composer.capture.export import trace
from dvk.config import Config, changed
from dvk.errors import UsageError
from dvk.learn.examples import Example, ExampleTask
from dvk.learn.sources import InMemory
from dvk.pipelines.sft import from_table
from dvk.pipelines.sft.fit import dialect_of, fit
from dvk.pipelines.train import train
from dvk.records import Interval, Status, Timing, Verdict
from dvk.records.measured import MeasuredTask, measured, write_table
from dvk.runs import RunFolder
from dvk.search import SearchProblem
from dvk.search.stratified import plans
from tests.pipelines import trainings

SPEEDUPS = (1.0, 0.8, 1.2, 0.9, 1.8, 1.0)
"""Of a task's plans, in their order: the default is not the best."""


def verdict(speedup: float) -> Verdict:
    ends = Interval(value=speedup, lo=0.99 * speedup, hi=1.01 * speedup)
    timing = Timing(candidate_ms=1.0, reference_ms=speedup, speedup=ends, num_pairs=9, seconds=0.1)
    return Verdict(status=Status.OK, tier="search", stage="done", timing=timing)


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> list[TaskContext]:
    folder = tmp_path_factory.mktemp("problems")
    for rows, factor in ((40, 2.0), (56, 3.0)):
        source = trainings.SOURCE.format(rows=rows, factor=factor)
        (folder / f"chain_{rows}.py").write_text(source)
    loaded = [tasks.load(str(path), device="cpu") for path in sorted(folder.glob("*.py"))]
    return [TaskContext(task, trace(task), "cpp") for task in loaded]


@pytest.fixture(scope="module")
def table(subjects: list[TaskContext], tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = []
    for subject in subjects:
        problem = SearchProblem(subject.task, subject.captured, "cpp", (), Config())
        asked = plans(problem, len(SPEEDUPS), seed=0)
        assert len(asked) == len(SPEEDUPS)
        found = [
            measured(candidate, verdict(speedup), kind)
            for (kind, candidate), speedup in zip(asked, SPEEDUPS, strict=True)
        ]
        rows.append(MeasuredTask(task=subject.task, backend="cpp", plans=tuple(found)))
    path = tmp_path_factory.mktemp("table") / "table.jsonl.gz"
    write_table(path, rows)
    return path


def test_the_fastest_plans_of_a_table_are_imitated(
    table: Path, subjects: list[TaskContext]
) -> None:
    problems: list[object] = []
    found = list(from_table.examples(table, problems))
    assert not problems and len(found) == 2
    for example, subject in zip(found, subjects, strict=True):
        assert example.speedup == 1.8 and example.verified and example.task.id == subject.task.id
        candidate = space_of(subject).candidate(space_of(subject).read(example.code), "")
        assert candidate.id and example.messages[-1]["content"] == example.code
    assert dialect_of(InMemory(found)) == "plan"
    kernel = Example.new(
        kind="policy",
        messages=({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}),
        task=ExampleTask(id="t"),
        origin="composer",
    )
    assert dialect_of(InMemory([kernel])) == "compact"
    with pytest.raises(UsageError, match="some examples are plans and others kernels"):
        dialect_of(InMemory([kernel, *found]))


@pytest.mark.slow
def test_a_model_fitted_on_a_table_answers_with_the_plans_that_pay(
    table: Path, subjects: list[TaskContext], tmp_path: Path
) -> None:
    config = changed(trainings.CONFIG, {"fit.epochs": 20})
    with RunFolder.open(
        tmp_path / "sft", command="sft", name="t", argv=(), config=config, resume=False
    ) as run:
        examples = InMemory([*from_table.examples(table, [])] * 8)
        start = f"nano:{fit(run, examples, 'nano-from-zero', config)['checkpoint']}"
    assert open_backbone(start, config, device="cpu").dialect == "plan"
    playing = changed(config, {"remote.judge": f"table:{table}", "train.rate": 1e-6})
    folder = Path(subjects[0].task.path or "").parent
    train(trainings.request(start, folder, tmp_path / "run", steps=1), playing)
    (row,) = trainings.metrics(tmp_path / "run")
    assert row["right"] == 1.0
    # Half for being right, half the lower end of the best plan's speedup.
    assert row["reward_turn_1"] == pytest.approx(0.5 + 0.5 * 0.99 * max(SPEEDUPS), abs=1e-3)
