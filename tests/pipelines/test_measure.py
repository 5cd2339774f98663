"""Tables of measured plans: made, resumed, merged, and taken for a judge."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dvk.cli.measure import lines
from dvk.config import changed
from dvk.errors import UsageError
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.harness.remote.table import tasks_of
from dvk.pipelines.grow import tables
from dvk.pipelines.measure import (
    ROWS,
    TABLE,
    MeasureRequest,
    fastest,
    joined,
    left_files,
    measure,
    summary,
)
from dvk.pipelines.sft.choose import ChooseRequest, choose
from dvk.records import Candidate, Episode, Interval, Status, Task, Timing, Trace, Turn, Verdict
from dvk.records.measured import MeasuredTask, is_table, measured, read_table, write_table
from dvk.resources import resource
from dvk.runs import RunFolder
from tests.cli import warm
from tests.harness.conftest import QUICK

SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * {factor}, -1) + x

def get_inputs():
    return [torch.randn(16, 64)]

def get_init_inputs():
    return []
"""


def verdict(speedup: float) -> Verdict:
    ends = Interval(value=speedup, lo=0.95 * speedup, hi=1.05 * speedup)
    timing = Timing(candidate_ms=1.0, reference_ms=speedup, speedup=ends, num_pairs=9, seconds=0.1)
    return Verdict(status=Status.OK, tier="search", stage="done", timing=timing, log="long")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two tasks with two plans each."""
    rows = []
    for name in ("two", "three"):
        task = Task(id=name, name=name, source=SOURCE, entry="Model", kind="module")
        plans = tuple(
            measured(
                Candidate(source="", backend="cpp", recipes=(kind,), schedule={"k0": {"width": n}}),
                verdict(1.0 + n),
                kind,
            )
            for n, kind in enumerate(("default", "structure"))
        )
        rows.append(MeasuredTask(task=task, backend="cpp", plans=plans))
    path = tmp_path / "table.jsonl.gz"
    write_table(path, rows)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that measured two tasks, three plans each."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "tasks").mkdir()
    for name, factor in (("two", 2.0), ("three", 3.0)):
        (folder / "tasks" / f"{name}.py").write_text(SOURCE.format(factor=factor))
    found = measure(request(folder / "run", tasks=(folder / "tasks",)), QUICK)
    assert (found["tasks"], found["plans"], found["timed"]) == (2, 6, 6)
    assert found["best"] >= found["default"] > 0
    return folder / "run"


def request(out: Path, **named: Any) -> MeasureRequest:
    return MeasureRequest(
        plans=3, device="cpu", backend="cpp", workers=1, out=out, quiet=True, **named
    )


@pytest.mark.slow
def test_plans_of_a_task_differ_and_the_default_is_first(run: Path) -> None:
    for row in read_table(run / TABLE):
        assert row.plans[0].kind == "default" and row.default is row.plans[0]
        assert len({plan.key for plan in row.plans}) == 3 and row.backend == "cpp"
        assert row.task.path is None and "softmax" in row.task.source and row.plans[0].schedule
        assert row.question.endswith("\nplan") and "softmax" in row.question and row.signature
        assert all(plan.text.split()[0] == "plan" for plan in row.plans)
        assert len({plan.text for plan in row.plans}) == 3


@pytest.mark.slow
def test_plans_of_a_table_are_timed_again(run: Path, tmp_path: Path) -> None:
    (one, other) = read_table(run / TABLE)
    few = one.model_copy(update={"plans": (one.plans[2], one.plans[0])})
    write_table(tmp_path / "few.jsonl.gz", [few])
    measure(request(tmp_path / "again", again=(tmp_path / "few.jsonl.gz",)), QUICK)
    (row,) = read_table(tmp_path / "again" / TABLE)
    assert [plan.key for plan in row.plans] == [plan.key for plan in few.plans]
    assert [plan.text for plan in row.plans] == [plan.text for plan in few.plans]
    assert row.plans[0].speedup != few.plans[0].speedup and row.task.name == one.task.name


def test_winners_are_timed_again_beside_the_default(table: Path) -> None:
    (row, _) = read_table(table)
    default, winner = row.plans
    slow = winner.model_copy(update={"kind": "random", "verdict": verdict(0.5)})
    more = row.model_copy(update={"plans": (default, slow, winner)})
    assert fastest(more, 1) == (default, winner)
    assert fastest(more, 2) == (default, winner), "the default is among the two fastest"
    assert fastest(more, 3) == fastest(more, None) == more.plans
    wrong = slow.model_copy(
        update={
            "verdict": Verdict(status=Status.MISMATCH, tier="search", stage="done", error="off")
        }
    )
    assert fastest(more.model_copy(update={"plans": (default, wrong, winner)}), 3) == (
        default,
        winner,
    ), "a wrong plan is not among the fastest"


def test_a_task_of_two_tables_is_timed_again_once(table: Path, tmp_path: Path) -> None:
    (row, other) = read_table(table)
    default, winner = row.plans
    slower = winner.model_copy(update={"verdict": verdict(0.5)})
    part = row.model_copy(update={"plans": (slower,)})
    (whole, kept) = joined([row.model_copy(update={"plans": (default,)}), other, part])
    assert whole.plans == (default, slower) and kept == other
    assert joined([row, part])[0].plans == row.plans, "the first of a plan's verdicts"


def test_a_resumed_run_with_more_of_the_fastest_measures_those(table: Path, tmp_path: Path) -> None:
    """The run has judged all that it was asked for, and is asked for more."""
    (row, other) = read_table(table)
    with RunFolder.open(
        tmp_path / "run", command="measure", name="cpp", argv=(), config=QUICK, resume=False
    ) as run:
        run.append(ROWS, row.model_copy(update={"plans": row.plans[:1]}))
        run.append(ROWS, other)
        one, more = (request(tmp_path, again=(table,), best=n) for n in (0, 1))
        assert not left_files(one, run, QUICK, "cpu", "cpp")
        (file,) = left_files(more, run, QUICK, "cpu", "cpp")
        assert file.name == row.task.name and file.before == row.plans[:1]
        run.finish("done")


@pytest.mark.hand
@pytest.mark.slow
def test_measuring_ends_with_its_budget(run: Path, tmp_path: Path) -> None:
    asked = request(tmp_path / "run", tasks=(run.parent / "tasks",), budget_s=0.01)
    found = measure(asked, QUICK)
    assert (found["tasks"], found["left"]) == (0, 2)
    assert "tasks left when the budget ended: 2; --resume" in "\n".join(lines(found))
    manifest = tmp_path / "run" / "run.json"
    assert '"interrupted"' in manifest.read_text()
    found = measure(replace(asked, resume=True, budget_s=None), QUICK)
    assert (found["tasks"], found["plans"], found["left"]) == (2, 6, 0)
    assert '"done"' in manifest.read_text()


def test_a_table_answers_for_the_judge_and_does_not_guess(table: Path) -> None:
    config = changed(QUICK, {"remote.judge": f"table:{table}"})
    (row, other) = read_table(table)
    plan = row.plans[1]
    known = Candidate(source="", backend="cpp", recipes=plan.recipes, schedule=plan.schedule)
    strange = known.model_copy(update={"source": "x", "recipes": ("dead_code",)})
    with JudgeQueue[int](1, config) as queue:
        asked = [(row.task, known), (row.task, strange)]
        (first, second) = (v for _, v in sorted(queue.map(asked, JudgeSpec())))
    assert first == plan.verdict and first.timing is not None and not first.log
    assert second.status is Status.BROKEN_TASK and "does not hold this plan" in (second.error or "")
    gone = other.task.model_copy(update={"id": "gone"})
    with JudgeQueue[int](1, config) as queue:
        ((_, third),) = queue.map([(gone, known)], JudgeSpec())
    assert "does not hold the task" in (third.error or "")


@pytest.mark.slow
def test_a_killed_run_measures_what_is_left(run: Path, tmp_path: Path) -> None:
    again = tmp_path / "run"
    again.mkdir()
    manifest = (run / "run.json").read_text()
    (again / "run.json").write_text(manifest.replace('"done"', '"interrupted"'))
    (kept, _) = (run / ROWS).read_text().splitlines()
    (again / ROWS).write_text(kept + "\n")
    asked = request(again, tasks=(run.parent / "tasks",), resume=True)
    assert measure(asked, QUICK)["tasks"] == 2
    before, after = (list(read_table(path / TABLE)) for path in (run, again))
    assert {row.task.name for row in after} == {"two", "three"} and after[0] in before


@pytest.mark.slow
def test_a_resumed_run_measures_the_plans_that_its_budget_left(run: Path, tmp_path: Path) -> None:
    again = tmp_path / "run"
    again.mkdir()
    (again / "run.json").write_text((run / "run.json").read_text().replace("done", "interrupted"))
    one, other = (MeasuredTask.model_validate_json(x) for x in (run / ROWS).open())
    part = one.model_copy(update={"plans": one.plans[:2], "left": 1})
    text = "".join(row.model_dump_json() + "\n" for row in (part, other))
    (again / ROWS).write_text(text)
    asked = request(again, tasks=(run.parent / "tasks",), resume=True)
    found = measure(asked, QUICK)
    assert (found["tasks"], found["plans"], found["left"]) == (2, 6, 0)
    rows = {row.task.name: row for row in read_table(again / TABLE)}
    whole = rows[one.task.name]
    assert whole.plans[:2] == one.plans[:2] and whole.plans[2].key == one.plans[2].key
    assert whole.plans[2].verdict != one.plans[2].verdict and rows[other.task.name] == other
    assert len((again / ROWS).read_text().splitlines()) == 3, "one task was measured"


@pytest.mark.slow
def test_tables_and_runs_are_merged(table: Path, tmp_path: Path) -> None:
    rows = list(read_table(table))
    half = rows[0].model_copy(update={"plans": rows[0].plans[:1]})
    write_table(tmp_path / "half.jsonl.gz", [half])
    played = Episode(
        task=rows[1].task.model_copy(update={"id": "third"}),
        traces=(
            Trace(
                role="policy",
                turns=(
                    Turn(
                        candidate=Candidate(source="a", backend="cpp", recipes=("default",)),
                        verdict=verdict(3.0),
                    ),
                    Turn(candidate=Candidate(source="b", backend="cpp"), verdict=verdict(4.0)),
                ),
            ),
        ),
    )
    (tmp_path / "trained" / "episodes").mkdir(parents=True)
    text = played.model_dump_json() + '\n{"task": '  # a kill cut the last line
    (tmp_path / "trained" / "episodes" / "step_000001.jsonl").write_text(text)
    merge = (tmp_path / "half.jsonl.gz", table, tmp_path / "trained")
    whole = measure(request(tmp_path / "run", merge=merge), QUICK)
    shipped = list(read_table(resource("data", "measured", "sample.jsonl.gz")))
    assert summary(table, shipped)["machine"].startswith("Intel Xeon Processor, 2 cores")
    assert lines(whole)[0] == "3 tasks, 5 plans, 5 timed"
    assert lines({**whole, "tasks": 1, "plans": 1, "timed": 1})[0] == "1 task, 1 plan, 1 timed"
    found = list(read_table(tmp_path / "run" / TABLE))
    assert found[:2] == rows and [p.speedup for p in found[2].plans] == [3.0], "one has no plan"
    for name in ("again", "more"):
        write_table(tmp_path / f"{name}.jsonl.gz", rows)
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "more.jsonl.gz").read_bytes()


@pytest.mark.slow
def test_evaluations_play_on_a_table(run: Path, tmp_path: Path) -> None:
    """The composer's default is in the table, so that its time is the one measured there."""
    asked = ("--backend", "cpp", "--device", "cpu", "--turns", 1, "--out", tmp_path / "eval")
    found = warm.dvk(
        "eval", run.parent / "tasks", *asked, "--judge", f"table:{run / TABLE}", cwd=tmp_path
    )
    (row, *_) = read_table(run / TABLE)
    assert row.default is not None and row.default.speedup is not None
    printed = [float(value) for value in re.findall(r": ([\d.]+)×", found.stderr)]
    assert any(value == pytest.approx(row.default.speedup, rel=0.01) for value in printed), printed


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no tasks"):
        measure(MeasureRequest(out=tmp_path / "a", quiet=True), QUICK)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no measured plan"):
        measure(request(tmp_path / "b", merge=(tmp_path / "empty",)), QUICK)
    with pytest.raises(UsageError, match="no task files"):
        measure(request(tmp_path / "d", tasks=(tmp_path / "empty",)), QUICK)
    text = tmp_path / "text.jsonl"
    text.write_text("no table")
    with pytest.raises(UsageError, match="is no table"):
        measure(request(tmp_path / "c", merge=(text,)), QUICK)
    shipped = resource("data", "measured", "heldout-h200.jsonl.gz")
    with pytest.raises(UsageError, match="holds no plan of cpp\nhint: give --backend triton"):
        measure(request(tmp_path / "f", again=(shipped,)), QUICK)
    with pytest.raises(UsageError, match="no such run or table"):
        measure(request(tmp_path / "e", merge=(tmp_path / "gone",)), QUICK)
    for command in ("optimize", "verify"):
        files = ["mine.py", "new.py"] if command == "verify" else ["mine.py"]
        (tmp_path / "mine.py").write_text(SOURCE)
        (tmp_path / "new.py").write_text(SOURCE)
        done = warm.dvk(command, *files, "--judge", f"table:{text}", cwd=tmp_path, exits=2)
        assert "judges nothing new" in done.stderr


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("missing", "cannot read the table `{path}`: No such file"),
        ("folder", "cannot read the table `{path}`: Is a directory"),
        ("empty", "it holds no task"),
        ("text", "Invalid JSON"),
        ("other", "`task`: "),
        ("not gzip", "Not a gzipped file"),
        ("cut", "ended before"),
        ("damaged", "`{path}` is no table of measured plans"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_clear_error(
    table: Path, tmp_path: Path, damage: str, reason: str
) -> None:
    path, packed = tmp_path / "bad.jsonl.gz", table.read_bytes()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        damaged = packed[:100] + bytes(20) + packed[120:]
        lines = {"empty": b"", "text": b"no table\n", "other": b'{"task": 3}\n'}
        files = {"not gzip": b"no table", "cut": packed[:-30], "damaged": damaged}
        path.write_bytes(files[damage] if damage in files else gzip.compress(lines[damage]))
    choice = ChooseRequest(tables=(path,), out=tmp_path / "run")
    again = MeasureRequest(again=(path,), out=tmp_path / "run", device="cpu", quiet=True)
    for use in (
        lambda: list(read_table(path)),
        lambda: tasks_of(path),
        lambda: tables(path),
        lambda: choose(choice, QUICK),
        lambda: measure(again, QUICK),
    ):
        with pytest.raises(UsageError, match=re.escape(reason.format(path=path))) as error:
            use()
        assert "\n" not in error.value.message and "`dvk measure`" in error.value.hint
    assert not is_table(path) and is_table(table) and not (tmp_path / "run").exists()
