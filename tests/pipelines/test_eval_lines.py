"""PyTorch's own lines in an evaluation: the portfolio's tables, and the reasons for baselines without a figure."""

from __future__ import annotations

from typing import Any

from dvk.composer.dropin.lines import cannot
from dvk.pipelines.eval import tables
from dvk.pipelines.eval.rows import EvalMeasurement, EvalRow
from dvk.records import Task


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
