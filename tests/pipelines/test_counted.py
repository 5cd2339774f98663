"""Stages that count, without a terminal: a line now and then, with an estimate; nothing if quiet."""

from __future__ import annotations

import io
import time

from rich.console import Console

from dvk.pipelines.report.counted import WordCount
from dvk.pipelines.train.live import TrainingView


def test_a_pipe_gets_plain_lines_with_an_estimate() -> None:
    out = io.StringIO()
    with WordCount("tasks", console=Console(file=out), every_s=0.05) as shown:
        line = shown.add_task("play", total=20, completed=10)
        time.sleep(0.15)
        assert "play: 10 of 20 tasks" in out.getvalue() and "left" not in out.getvalue(), (
            "what was done before tells no speed"
        )
        shown.advance(line, 5)
        time.sleep(0.15)
    said = out.getvalue()
    assert (
        "play: 15 of 20 tasks" in said
        and "about 0." in said
        and "\x1b" not in said
        and "%" not in said
    )


def test_no_more_time_is_promised_than_the_budget_leaves() -> None:
    for budget_s, told in ((None, True), (0.001, False)):
        shown = WordCount("tasks", console=Console(file=io.StringIO()), budget_s=budget_s)
        line = shown.add_task("measure", total=1000)
        shown.lines()  # from here on it counts
        time.sleep(0.01)
        shown.advance(line)
        (said,) = shown.lines()
        assert ("about 0.0 s left" not in said) is told, said


def test_little_is_said_and_nothing_in_quiet() -> None:
    out = io.StringIO()
    for shown in (
        WordCount("tasks", console=Console(file=out)),
        WordCount("tasks", console=Console(file=out), quiet=True, every_s=0.01),
    ):
        with shown:
            shown.advance(shown.add_task("play", total=2))
            time.sleep(0.05)
    assert out.getvalue() == ""


def test_a_terminal_gets_a_bar() -> None:
    out = io.StringIO()
    with WordCount(
        "tasks", console=Console(file=out, force_terminal=True, width=80), every_s=0.01
    ) as shown:
        shown.advance(shown.add_task("play", total=2))
    assert "1/2 tasks" in out.getvalue() and "of 2 tasks" not in out.getvalue()


def test_training_says_what_a_step_is_at_and_what_is_left() -> None:
    live = TrainingView(10, quiet=True)
    live.stage("playing", 3)
    assert live.line().startswith("step 4 of 10, playing, ") and "left" not in live.line()
    live.step({"step": 4.0})
    live.stage("learning", 4)
    assert "step 5 of 10, learning" in live.line() and "left" in live.line()


def test_training_in_a_pipe_is_not_silent(capfd) -> None:  # type: ignore[no-untyped-def]
    live = TrainingView(2)
    live._every_s = 0.05
    with live:
        live.stage("preparing tasks", 0)
        time.sleep(0.2)
    assert "step 1 of 2, preparing tasks" in capfd.readouterr().err
