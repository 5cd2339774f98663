"""`dvk eval SUITE --judge table:FILE`: a GPU's table needs no GPU, and what it does not hold is in no figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dvk.cli.eval import lines
from dvk.composer import CannotCompose
from dvk.config import Config, changed
from dvk.errors import UsageError
from dvk.pipelines.eval import EvalRequest, evaluate, measured
from dvk.pipelines.eval.comparing import load
from dvk.pipelines.eval.results import show
from dvk.pipelines.eval.suites import read
from dvk.records import Candidate, Episode, Trace, Turn
from dvk.records.measured import MeasuredTask, read_table, write_table
from dvk.resources import resource

SHIPPED = resource("data", "measured", "train-h200.jsonl.gz")


@pytest.fixture(scope="module")
def rows() -> list[MeasuredTask]:
    """Three tasks that were measured on a GPU, for training."""
    found = [row for row in read_table(SHIPPED) if row.best and not row.task.beside][:3]
    assert {(row.task.device, row.backend) for row in found} == {("cuda", "triton")}
    return found


@pytest.fixture
def suite(rows: list[MeasuredTask], tmp_path: Path) -> Path:
    """These tasks and one that was not measured."""
    folder = tmp_path / "suite"
    folder.mkdir()
    for row in rows:
        (folder / f"{row.task.name}.py").write_text(row.task.source)
    (folder / "new.py").write_text("import torch\n")
    return folder


@pytest.fixture
def table(rows: list[MeasuredTask], tmp_path: Path) -> Path:
    path = tmp_path / "table.jsonl.gz"
    write_table(path, rows)
    return path


def judged_by(table: Path) -> Config:
    return changed(Config(), {"remote.judge": f"table:{table}"})


def recorded(place: Path, rows: Sequence[MeasuredTask]) -> str:
    """Candidates to be judged: of each task its fastest plan, of the last one a plan that was never measured."""
    episodes = []
    for row in rows:
        assert row.best is not None
        recipes = row.best.recipes if row is not rows[-1] else ("made_up",)
        made = Candidate(
            source="", backend="triton", recipes=recipes, schedule=dict(row.best.schedule)
        )
        traces = (Trace(role="policy", turns=(Turn(candidate=made),)),)
        episodes.append(Episode(task=row.task, traces=traces))
    place.write_text("".join(one.model_dump_json() + "\n" for one in episodes))
    return f"episodes:{place}"


def test_a_table_of_a_gpu_answers_without_one(
    rows: list[MeasuredTask], suite: Path, table: Path, tmp_path: Path
) -> None:
    policy, run = recorded(tmp_path / "record.jsonl", rows), tmp_path / "run"
    request = EvalRequest(suite=suite, policy=policy, out=run, quiet=True)
    found = evaluate(request, judged_by(table))
    assert (found["device"], found["backend"], found["num_tasks"]) == ("cuda", "triton", 2)
    known, unknown = rows[:-1], rows[-1].task.name
    ends = {row.task: row.final.speedup for row in load(run)[0]}
    assert ends == {row.task.name: row.best and row.best.speedup for row in known}
    assert found["fast_p"]["0"] == 1.0 and not found["failed"]
    assert found["table"]["left_out"] == {"new": measured.NO_TASK}
    assert list(found["table"]["unknown"]) == [unknown]
    assert "does not hold this plan" in found["table"]["unknown"][unknown]
    told = "\n".join(lines(found))
    assert f"all times are from {table}, measured earlier on NVIDIA H200" in told
    assert f"with nothing known, in no figure (results.jsonl says why): {unknown}" in told
    assert "(measured.jsonl says why): new" in told and "dvk doctor" not in told
    assert "nothing ran here" in (run / "report.html").read_text()
    assert show(run)["table"] == found["table"]
    manifest = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**manifest, "status": "interrupted"}))
    left = show(run)
    assert (left["num_left"], left["counted"]["num_waiting"]) == (0, 0)


def test_a_task_that_cannot_be_captured_here_is_in_no_figure(
    rows: list[MeasuredTask],
    suite: Path,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_graph(tasks: Any, **_: Any) -> Any:
        return ((place, CannotCompose("no GPU")) for place, _ in enumerate(tasks))

    monkeypatch.setattr(measured, "capture_many", no_graph)
    request = EvalRequest(suite=suite, no_skills=True, out=tmp_path / "run", quiet=True)
    name = min(row.task.name for row in rows)
    with pytest.raises(UsageError, match=f"nothing is known of 3 tasks; {name}: it cannot be capt"):
        evaluate(request, judged_by(table))


def test_tasks_are_found_by_text_mode_and_place(
    rows: list[MeasuredTask], suite: Path, table: Path
) -> None:
    def found(judge: str | None = f"table:{table}", **asked: Any) -> measured.MeasuredSuite | None:
        request = EvalRequest(suite=suite, **asked)
        return measured.find(read(suite, request.only), request, judge)

    one, other, _ = (row.task.name for row in rows)
    assert found(None) is None and found("kernelgym:http://127.0.0.1:1") is None
    (suite / f"{one}.py").rename(suite / "renamed.py")
    (suite / f"{other}.py").write_text("import torch\n")
    held = found()
    assert held is not None and held.rows["renamed"].task.name == one and other not in held.rows
    assert held.left_out == {other: measured.OTHER_TEXT, "new": measured.NO_TASK}
    for asked in ({"device": "cpu"}, {"backend": "cuda"}, {"eval_mode": True}, {"train": True}):
        with pytest.raises(UsageError, match="measured otherwise: --backend triton --device cuda"):
            found(**asked)
    with pytest.raises(UsageError, match="holds no task of .*; new: the table does not hold it"):
        found(only=("new",))
    for refused in ({"claim": True}, {"hygiene": True}, {"baselines": ("compile",)}):
        with pytest.raises(UsageError, match="a table times nothing new"):
            found(**refused)


def test_tasks_of_two_devices_need_a_choice(rows: list[MeasuredTask], suite: Path) -> None:
    table = suite.parent / "two.jsonl"
    on_cpu = rows[0].task.model_copy(update={"device": "cpu"})
    moved = rows[0].model_copy(update={"task": on_cpu, "backend": "cpp"})
    write_table(table, [moved, *rows[1:]])
    problems = read(suite)
    with pytest.raises(UsageError, match="holds tasks of cpp on cpu and triton on cuda"):
        measured.find(problems, EvalRequest(suite=suite), f"table:{table}")
    held = measured.find(problems, EvalRequest(suite=suite, device="cpu"), f"table:{table}")
    assert held is not None and (held.device, held.backend) == ("cpu", "cpp")
    assert list(held.rows) == [rows[0].task.name]


def test_a_model_that_writes_kernels_is_refused(suite: Path, table: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"dialect": "compact"}\n{"answer": "x"}\n')
    request = EvalRequest(
        suite=suite, policy=f"scripted:{script}", out=tmp_path / "run", quiet=True
    )
    with pytest.raises(UsageError, match="writes kernels, and a table holds plans"):
        evaluate(request, judged_by(table))
    assert not (tmp_path / "run").exists()
