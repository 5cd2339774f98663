"""PyTorch's own lines in an evaluation: the portfolio's tables, and the reasons for baselines without a figure."""

from __future__ import annotations

from typing import Any

from dvk.composer.dropin.lines import cannot
from dvk.pipelines.eval import tables
from dvk.pipelines.eval.rows import EvalMeasurement, EvalRow, rows_for
from dvk.records import Task
from tests.pipelines.evaluations import episode, verdict


def measured(speedup: float | None, **over: float) -> EvalMeasurement:
    return EvalMeasurement(
        correct=speedup is not None,
        speedup=speedup,
        lo=speedup and speedup * 0.98,
        over=over,
        over_lo=over,
        regime="end_to_end" if speedup else None,
    )


def row(task: str, own: float | None, compiled: float | None, **fields: Any) -> EvalRow:
    return EvalRow(
        task=task,
        turns=(measured(own, compile=own / compiled) if own and compiled else measured(own),),
        lines={"compile": measured(compiled)},
        **fields,
    )


def test_the_portfolio_is_the_fastest_way_of_each_task():
    rows = [
        row("own wins", 2.0, 1.5),
        row("compile wins", 1.1, 1.65),
        row("nothing own is right", None, 1.3),
        row("compile fails", 1.2, None, not_timed={"compile": "it draws random numbers"}),
    ]
    assert [one.portfolio()[0] for one in rows] == ["dvk", "compile", "compile", "dvk"]
    found = tables.summarise(rows, baselines=("compile",))
    whole = found["portfolio"]
    assert found["fast_p"]["1.2"] == 0.25 and whole["fast_p"]["1.2"] == 0.75
    assert found["compile"]["fast_p"]["1"] == 0.25
    assert whole["over"]["compile"]["fast_p"]["1"] == 0.25, "its own line is no faster than itself"
    assert whole["lines"]["compile"]["fast_p"]["1.5"] == 0.25
    assert whole["winners"] == {"dvk": 2, "compile": 2}
    assert whole["not_timed"] == {"compile": {"compile fails": "it draws random numbers"}}
    assert "portfolio" not in tables.summarise(rows), "where no baseline was asked for"


def test_a_line_that_cannot_be_a_candidate_says_why():
    task = Task(id="0", name="m", source="", entry="Model", kind="module")
    assert cannot(task, "compile") is None and "GPU" in str(cannot(task, "graph"))
    drawing = task.model_copy(update={"stochastic": True, "device": "cuda"})
    assert "random" in str(cannot(drawing, "max-autotune")) and cannot(drawing, "graph") is None


def test_no_baseline_is_missing_without_a_reason():
    timed = verdict(2.0, over_compile=1.25)
    left_out = verdict(2.0, over_compile=None).model_copy(
        update={"baselines_left_out": {"compile": "CUDA out of memory"}}
    )
    alone = verdict(2.0, over_compile=None)
    played = [
        episode("timed", [1.9, 2.1]),
        episode("left out", [1.9, 2.1]),
        episode("judged alone", [1.9, 2.1]),
        episode("wrong", [None, None]),
        episode("not reached", [1.9, 2.1]),
    ]
    again = {("timed", 0): timed, ("left out", 0): left_out, ("judged alone", 0): alone}
    lines = [{"task": "judged alone", "line": "compile", "verdict": verdict(1.6)}]
    found = {
        row.task: row for row in rows_for(played, [], again, lines=lines, baselines=("compile",))
    }
    told = {name: row.not_timed.get("compile") for name, row in found.items()}
    assert told == {
        "timed": None,
        "left out": "CUDA out of memory",
        "judged alone": None,
        "wrong": "nothing was timed: mismatch: off by one",
        "not reached": "it was not timed: resume the run",
    }
    assert found["judged alone"].final.over == {"compile": 2.0 / 1.6}
    assert found["timed"].final.over == {"compile": 1.25}
