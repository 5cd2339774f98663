"""The page of a training: every figure that the loop keeps has its curve, on the right place, and nothing comes from outside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dvk.config import Config
from dvk.pipelines.metrics import FILE
from dvk.pipelines.report import curves
from dvk.pipelines.report.curves import Curves, Series
from dvk.pipelines.train import page
from dvk.pipelines.train.figures import episode_figures, grooming_counts
from dvk.records import Episode, Task, Trace, Turn
from dvk.runs import RunFolder
from dvk.skills.grooming import LibraryChange
from tests.pipelines.pages import Page

GOLDEN = Path(__file__).parent / "files" / "golden" / "trajectory.json"


def rows(count: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "reward_turn_1": step / 10,
            "reward_turn_2": step / 5,
            "entropy": None if step == 3 else 1.0 / step,
            "kept": 0.9,
            "left_out_coverage": 2.0,
            "answers": 8.0,
            "skills": 60.0 + step,
            "play_s": 2.0,
            "learn_s": 1.0,
            "judged": 6.0,
            "judged_anew": 3.0,
            **(
                {"val_fast_1": step / 80, "val_speedup": 1.0 + step / 100} if step % 10 == 0 else {}
            ),
        }
        for step in range(1, count + 1)
    ]


def run(
    folder: Path, made: list[dict[str, Any]], validated: dict[int, list[float | None]]
) -> RunFolder:
    opened = RunFolder.open(
        folder,
        command="train",
        name="nano",
        argv=("dvk", "train", "--from", "<b>"),
        config=Config(),
        resume=False,
    )
    for row in made:
        opened.append(FILE, row)
    for step, speeds in validated.items():
        lines = [
            {
                "task": f"t{n}",
                "name": f"n{n}",
                "status": "ok",
                "correct": speed is not None,
                "speedup": speed,
                "lo": speed,
            }
            for n, speed in enumerate(speeds)
        ]
        opened.write_text(
            f"validation/step_{step:06d}.jsonl", "".join(json.dumps(line) + "\n" for line in lines)
        )
    return opened


def test_the_page_tells_before_and_after_and_draws_the_curves(tmp_path: Path) -> None:
    opened = run(tmp_path / "run", rows(), {0: [None, 0.9, 1.3], 40: [1.3, 1.3, 1.3]})
    page.write(opened)
    opened.finish("done")
    read = Page((opened.path / "report.html").read_text())
    assert read.headings[0] == (1, "40 steps of training")
    assert [title for level, title in read.headings if level == 2] == [
        "Before and after",
        "What it earns",
        "Validation",
        "The library",
        "What is left out",
        "The update",
        "Time",
        "All figures",
        "Reproduce",
    ]
    before, after, gain = read.table("speedup (original kept)")[1:]
    assert (
        before[2].startswith("33.3 %")
        and after[2] == "100.0 % [43.9, 100.0]"
        and gain[2].startswith("+66.7 pp")
    )
    series = {
        attributes["data-series"] for _, attributes in read.elements if "data-series" in attributes
    }
    assert {
        "turn 1",
        "turn 2",
        "over 1×",
        "skills",
        "PRS",
        "rejected",
        "entropy",
        "play",
        "uncached",
    } <= series and "turn 3" not in series
    assert "&lt;b&gt;" in read.text and not re.search(
        r"https?://|<script|<link|@import|url\(", read.text
    )
    last = dict(
        zip(
            read.table("Figure")[0], next(row for row in read.table("Figure") if row[0] == "skills")
        )
    )
    assert last["First"] == "61" and last["Last"] == "100"


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    opened = run(tmp_path / "run", [], {})
    page.write(opened)
    opened.close()
    assert "0 steps of training" in (opened.path / "report.html").read_text()


def test_every_curve_reads_a_figure_that_the_loop_keeps() -> None:
    """Metrics of a real trajectory, so that a renamed figure is missed here."""
    kept = [
        {**row, **{f"{stage}_s": 1.0 for stage in page.STAGES}}
        for row in json.loads(GOLDEN.read_text())["rows"]
    ]
    empty = [one.title for _, charts in page.curve_groups(kept) for one in charts if not one.drawn]
    assert empty == []


def test_points_lie_where_the_ticks_say() -> None:
    chart = Curves(
        "t", "c", [Series("a", [(0.0, 0.0), (10.0, 5.0)]), Series("none", [])], zero=True
    )
    x, y = curves.scales(chart)
    assert (x(0.0), x(10.0), y(0.0)) == (
        curves.LEFT,
        curves.RIGHT,
        curves.BOTTOM,
    ) and curves.TOP < y(5.0) < y(0.0)
    drawn = curves.draw(chart)
    assert f"M{x(0.0):.1f} {y(0.0):.1f}L{x(10.0):.1f} {y(5.0):.1f}" in drawn and "none" not in drawn


@pytest.mark.parametrize(
    "points", [[(1.0, 0.0)], [(1.0, -2.0), (2.0, -2.0)], [(1.0, 1e-9), (2.0, 2e-9)], [(5.0, 1e7)]]
)
@pytest.mark.parametrize("share", [True, False])
def test_flat_and_single_series_are_drawn(points: list[tuple[float, float]], share: bool) -> None:
    drawn = curves.draw(Curves("t", "c", [Series("a", points)], share=share))
    assert "nan" not in drawn and "inf" not in drawn and "<circle" in drawn


def test_figures_are_short() -> None:
    shown = {
        0.0: "0",
        1.5e-7: "1.5e-7",
        1e-6: "1e-6",
        0.01234: "0.0123",
        12.34: "12.3",
        1234.5: "1234",
        3e8: "3e8",
    }
    assert {value: curves.show(value) for value in shown} == shown
    assert curves.show(0.125, share=True) == "12.5 %"


def test_long_series_are_drawn_with_their_running_mean() -> None:
    points = [(float(n), float(n % 2)) for n in range(200)]
    smooth = curves.running(points)
    assert len(smooth) == 200 and all(abs(value - 0.5) < 0.1 for _, value in smooth[10:-10])
    drawn = curves.draw(Curves("t", "c", [Series("a", points)]))
    assert 'class="faint"' in drawn and 'class="line"' in drawn and "<circle" not in drawn


def test_labels_keep_apart() -> None:
    chart = Curves(
        "t",
        "c",
        [Series(f"s{n}", [(0.0, 1.0 + n / 1000), (1.0, 2.0 + n / 1000)]) for n in range(6)],
    )
    page_of = Page(f"<div>{curves.draw(chart)}</div>")
    places = sorted(
        float(a["y"] or 0)
        for tag, a in page_of.elements
        if tag == "text" and (a.get("class") or "").startswith("name")
    )
    assert len(places) == 6 and all(b - a >= 13.9 for a, b in zip(places, places[1:]))
    assert curves.TOP - curves.LINE <= places[0] and places[-1] <= curves.BOTTOM + 20


def test_roles_are_distinguished() -> None:
    """A scheme is worth the mean over its conversations of the best turn; untried summaries count for nothing."""

    def trace(role: str, scheme: int | None, rollout: int, *turns: Turn) -> Trace:
        return Trace(role=role, scheme=scheme, rollout=rollout, turns=turns)  # type: ignore[arg-type]

    told = Turn(completion="none", reward=0.0)
    episode = Episode(
        task=Task(id="i", name="n", source="", entry="Model", kind="module", device="cpu"),
        traces=(
            trace("policy", None, 0, Turn(reward=0.5), Turn(reward=1.0)),
            trace("policy", 0, 0, Turn(reward=2.0), Turn(reward=0.0)),
            trace("policy", 0, 1, Turn(reward=1.0)),
            trace("summary", 0, 0, told),
            trace("summary", 0, 1, told),
            trace("summary", 0, 2, told),
        ),
    )
    found = episode_figures([episode], {"i": {0: 0.4, 1: None}})
    assert (found["reward_null"], found["reward_selection"]) == (1.0, 1.5)
    assert found["reward_summary"] == pytest.approx(0.2) and found[
        "reward_turn_1"
    ] == pytest.approx(3.5 / 3)


def test_churn_is_counted_by_kind() -> None:
    assert grooming_counts(
        [
            LibraryChange("retired", "a", "w"),
            LibraryChange("retired", "b", "w"),
            LibraryChange("merged", "c", "w", into="d"),
        ]
    ) == {"retired": 2.0, "merged": 1.0, "changed": 0.0}
