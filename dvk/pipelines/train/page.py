"""`report.html` of a training run: its progress since the start, and its curves; one page, without external resources."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dvk.pipelines.metrics import FILE
from dvk.pipelines.report.curves import Curves, Series, figure, show
from dvk.pipelines.report.markup import Markup, el
from dvk.pipelines.report.pieces import document, folded, footer, headers, region, table
from dvk.pipelines.report.units import many, show_s
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
    title = f"{many(steps, 'step')} of training"
    sections = []
    for heading, charts in curve_groups(rows):
        drawn = [drawing for one in charts if (drawing := figure(one)) is not None]
        if drawn:
            sections.append(el("section", el("h2", heading), el("div", drawn, class_="curves")))
    return document(
        f"{manifest.get('name', 'train')}: {title}",
        _header(title, rows, manifest),
        _validation(arms),
        sections,
        _figures(rows),
        _reproduce(manifest),
        el("footer", footer(manifest)),
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


def _header(title: str, rows: Sequence[Row], manifest: Mapping[str, Any]) -> Markup:
    seconds = [
        sum(row.get(f"{stage}_s", 0.0) for stage in STAGES) for row in rows if "play_s" in row
    ]
    told = (
        [
            f"{show_s(sum(seconds))} in all, {show_s(sorted(seconds)[len(seconds) // 2])} a step (median)."
        ]
        if seconds
        else []
    )
    return el(
        "header",
        el(
            "p",
            el("code", str(manifest.get("name", ""))),
            f" · {manifest.get('machine', '')}",
            class_="over",
        ),
        el("h1", title),
        [el("p", text) for text in told],
    )


def _validation(arms: Sequence[PolicyOutcomes]) -> Markup | None:
    if not arms:
        return None
    head, *lines = comparing.table(comparing.compared([arm for arm in arms if arm.outcomes]))
    rows = [
        el(
            "tr",
            el("th", line[0], scope="row"),
            [el("td", cell, class_="num") for cell in line[1:]],
        )
        for line in lines
    ]
    said = "Greedy, one turn, on tasks that are never trained on. 95 % intervals over tasks; differences are paired."
    return el(
        "section",
        el("h2", "Before and after"),
        el("p", said),
        table(
            headers(head[0] or "Policy", *(f"{name} " for name in head[1:])),
            rows,
            "Validation before and after",
        ),
    )


def _figures(rows: Sequence[Row]) -> Markup | None:
    names = sorted({name for row in rows for name in row if name != "step"})
    lines = []
    for name in names:
        points = series_of(rows, name)
        if points:
            values = [value for _, value in points]
            cells = (values[0], min(values), sum(values) / len(values), max(values), values[-1])
            lines.append(
                el(
                    "tr",
                    el("th", el("code", name), scope="row"),
                    [el("td", show(cell), class_="num") for cell in cells],
                )
            )
    if not lines:
        return None
    heads = headers("Figure", "First ", "Least ", "Mean ", "Most ", "Last ")
    return el("section", el("h2", "All figures"), table(heads, lines, "All figures"))


def _reproduce(manifest: Mapping[str, Any]) -> Markup:
    parts = [
        el("h3", "Command"),
        el("pre", el("code", str(manifest.get("argv", ""))), **region("Command line")),
    ]
    if manifest.get("config"):
        parts.append(folded("All settings", json.dumps(manifest["config"], indent=2)))
    return el("section", el("h2", "Reproduce"), parts)
