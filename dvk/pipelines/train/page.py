"""`report.html` of a training run: its progress since the start, and its curves; one page, without external resources."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from dvk.pipelines.metrics import FILE
from dvk.pipelines.report.curves import Curves, Series, show
from dvk.pipelines.report.templates import render as render_page
from dvk.pipelines.report.units import many
from dvk.pipelines.train import comparing, validations
from dvk.pipelines.train.charts import CHARTS, STAGES
from dvk.pipelines.train.comparing import PolicyOutcomes
from dvk.runs import MANIFEST, RunFolder

Row = Mapping[str, Any]


def write(run: RunFolder) -> None:
    """Write the page from the run's files, at any moment. In a process group the process that writes the run does."""
    if not run.writes:
        return
    rows = run.read(FILE)
    manifest = json.loads((run.path / MANIFEST).read_text(encoding="utf-8"))
    step, after = validations.latest(run.path)
    arms = [
        PolicyOutcomes("before", validations.initial(run.path)),
        PolicyOutcomes(f"after {many(step, 'step')}", after),
    ]
    run.write_text("report.html", render(rows, arms if step > 0 else [], manifest))


def render(rows: Sequence[Row], arms: Sequence[PolicyOutcomes], manifest: Mapping[str, Any]) -> str:
    """The whole document.

    Args:
        rows: of metrics.jsonl.
        arms: the first validation and the last; empty if there are none.
        manifest: run.json.
    """
    steps = max((int(row["step"]) for row in rows), default=0)
    heading = f"{many(steps, 'step')} of training"
    return render_page(
        "training",
        manifest,
        title=f"{manifest.get('name', 'train')}: {heading}",
        heading=heading,
        seconds=[
            sum(row.get(f"{stage}_s", 0.0) for stage in STAGES) for row in rows if "play_s" in row
        ],
        validation=comparing.table(comparing.compared([arm for arm in arms if arm.outcomes]))
        if arms
        else None,
        groups=curve_groups(rows),
        figures=_figures(rows),
    )


def curve_groups(rows: Sequence[Row]) -> list[tuple[str, list[Curves]]]:
    """The curves by topic."""
    return [
        (
            topic,
            [
                Curves(
                    chart.title,
                    chart.caption,
                    [Series(label, points(rows, figure)) for label, figure in chart.lines],
                    share=chart.share,
                    zero=chart.zero,
                )
                for chart in charts
            ],
        )
        for topic, charts in CHARTS.items()
    ]


def points(rows: Sequence[Row], figure: str) -> list[tuple[float, float]]:
    """(step, value) of a line; see `Chart.lines`."""
    if " / " in figure:
        return ratio(rows, *figure.split(" / "))
    if figure.startswith("1 - "):
        return [(step, 1.0 - value) for step, value in series_of(rows, figure[4:])]
    return series_of(rows, figure)


def series_of(rows: Sequence[Row], key: str) -> list[tuple[float, float]]:
    """(step, value) of the rows that have a figure."""
    return [(float(row["step"]), float(row[key])) for row in rows if _finite(row.get(key))]


def ratio(rows: Sequence[Row], above: str, below: str) -> list[tuple[float, float]]:
    """(step, quotient) of the rows that have both figures, the lower one not 0."""
    there = [
        row for row in rows if _finite(row.get(above)) and _finite(row.get(below)) and row[below]
    ]
    return [(float(row["step"]), row[above] / row[below]) for row in there]


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _figures(rows: Sequence[Row]) -> list[list[str]]:
    """Name, first, least, mean, most and last value of every figure."""
    lines = []
    for name in sorted({name for row in rows for name in row if name != "step"}):
        values = [value for _, value in series_of(rows, name)]
        if values:
            cells = (values[0], min(values), fmean(values), max(values), values[-1])
            lines.append([name, *map(show, cells)])
    return lines
