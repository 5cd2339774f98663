"""`report.html` of a comparison: both curves, every task as a point, the differences and the tasks that changed most."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dvk.pipelines.eval.page import profile
from dvk.pipelines.eval.rows import EvalRow, best_of, outcome, same_timing_kind
from dvk.pipelines.report.chart import Scale
from dvk.pipelines.report.curves import Curves, Series
from dvk.pipelines.report.markup import Markup, el, join
from dvk.pipelines.report.templates import render as render_page
from dvk.pipelines.report.units import many, show_share
from dvk.records import show_ratio
from dvk.runs import MANIFEST, RunFolder

SIDE, LEFT, TOP, BOTTOM = 300, 44, 12, 274
Found = Mapping[str, Any]


def write(
    run: RunFolder, found: Found, first: Sequence[EvalRow], second: Sequence[EvalRow]
) -> None:
    """Write the page and `comparison.json` into a run's folder.

    Args:
        found: result of `comparing.compare`.
        first, second: the rows of both.
    """
    manifest = json.loads((run.path / MANIFEST).read_text(encoding="utf-8"))
    run.write_text("comparison.json", json.dumps(found, indent=2))
    run.write_text("report.html", render(found, first, second, manifest))


def render(
    found: Found, first: Sequence[EvalRow], second: Sequence[EvalRow], manifest: Mapping[str, Any]
) -> str:
    """The whole document."""
    gap = found["differences"]["fast_1"]
    title = f"fast_1 {shown('fast_1', gap)} on {many(found['num_shared'], 'task')}"
    runs = [side["run"] for side in (found["first"], found["second"])]
    names = [side["policy"] or side["run"] for side in (found["first"], found["second"])]
    note = (
        f"Differences paired by task, 95 % intervals over tasks. {many(found['num_only_first'], 'task')} only in A and "
        f"{many(found['num_only_second'], 'task')} only in B are left out."
    )
    return render_page(
        "comparison",
        manifest,
        title=f"{names[1]} against {names[0]}: {title}",
        heading=f"B against A: {title}",
        sides=list(zip("AB", names, runs, strict=True)),
        notes=[note, *unlike(found)],
        differences=_differences(found),
        shares=_shares(first, second),
        scatter=scatter(first, second),
        changes=[*found["gained"], *reversed(found["lost"])],
    )


def shown(name: str, gap: Found) -> str:
    """`+3.1 pp [-1.2, +7.4]`, `1.320× [1.210, 1.440]`; without ends for one task, a dash if there are no pairs."""
    value, lo, hi = gap["value"], gap["lo"], gap["hi"]
    if value is None:
        return "–"
    if name.startswith("fast_"):
        return f"{100 * value:+.1f} pp" + (
            f" [{100 * lo:+.1f}, {100 * hi:+.1f}]" if lo is not None else ""
        )
    return (
        f"{value:.3f}×"
        + (f" [{lo:.3f}, {hi:.3f}]" if lo is not None else "")
        + f" ({many(gap['num_tasks'], 'task')})"
    )


def unlike(found: Found) -> list[str]:
    """A note on tasks that were timed in two ways; empty if there are none."""
    all_samples, best = found["num_unlike"], found["best_of"]["speedup"]["num_unlike"]
    if not all_samples and not best:
        return []
    return [
        f"{many(all_samples, 'task')} timed in two ways, on the device alone and from end to end (best samples: {best}): left out of "
        "speedup, faster when right, gained and lost; in the shares (fast_p) they count"
    ]


def _differences(found: Found) -> list[tuple[str, list[str], str, str]]:
    """Rows of the table: score, both values, the difference, and that in speed where both share a row."""
    sides = (found["first"], found["second"])
    rows = []
    for name, gap in found["differences"].items():
        values = ["", ""]
        if name.startswith("fast_"):
            values = [show_share(side["fast_p"][name.removeprefix("fast_")]) for side in sides]
        elif name == "speedup":
            values = [show_ratio(side["geomean_kept"]) for side in sides]
        label = name.replace("_", " ") if name == "faster_when_right" else name
        rows.append((label, values, shown(name, gap), ""))
    for label, gaps in [
        ("best sample", found["best_of"]),
        ("over torch.compile", found["compile"]),
        *found["levels"].items(),
    ]:
        if gaps:
            both = shown("fast_1", gaps["fast_1"]), shown("speedup", gaps["speedup"])
            rows.append((f"fast_1, {label}", ["", ""], *both))
    return rows


def _shares(first: Sequence[EvalRow], second: Sequence[EvalRow]) -> Curves:
    lines = [
        Series(letter, profile([outcome(row, row.final) for row in rows]))
        for letter, rows in (("A", first), ("B", second))
    ]
    caption = "Share of tasks right and more than p times as fast as eager, by p."
    return Curves("fast_p", caption, lines, share=True)


def scatter(first: Sequence[EvalRow], second: Sequence[EvalRow]) -> Markup | None:
    """Every task that both solved, timed in one way: speedup of A to the right, of B upwards; above the diagonal B is faster."""
    ends = [
        {row.task: end for row, end in best_of(rows) if end.speedup} for rows in (first, second)
    ]
    points = [
        (task, a.speedup, b.speedup)
        for task in sorted(ends[0].keys() & ends[1].keys())
        if same_timing_kind(a := ends[0][task], b := ends[1][task]) and a.speedup and b.speedup
    ]
    if not points:
        return None
    seen = [value for _, a, b in points for value in (a, b)]
    lo, hi = min(*seen, 0.9) / 1.05, max(*seen, 1.1) * 1.05
    x, y = Scale(lo, hi, LEFT, LEFT + SIDE - 20, log=True), Scale(lo, hi, BOTTOM, TOP, log=True)
    drawn = el(
        "svg",
        el("title", f"Speedup in B against speedup in A, {many(len(points), 'task')}"),
        [
            join(
                el("line", x1=x(lo), x2=x(hi), y1=y(tick), y2=y(tick), class_="grid"),
                el("text", f"{tick:g}×", x=LEFT - 6, y=y(tick) + 4, class_="tick-y"),
                el("text", f"{tick:g}×", x=x(tick), y=BOTTOM + 16, class_="tick-x"),
            )
            for tick in y.ticks()
        ],
        el("line", x1=x(lo), x2=x(hi), y1=y(lo), y2=y(hi), class_="level"),
        el(
            "g",
            [
                el(
                    "circle",
                    el("title", f"{task}: {show_ratio(a)} to {show_ratio(b)}"),
                    cx=x(a),
                    cy=y(b),
                    r=2.5,
                )
                for task, a, b in points
            ],
            class_="series c0",
        ),
        viewBox=f"0 0 {LEFT + SIDE} {SIDE}",
        role="img",
    )
    said = "Speedup over eager of the best sample: A to the right, B upwards, tasks that both solved. Above the line B is faster."
    return el("figure", el("h3", "Tasks that both solved"), drawn, el("figcaption", said))
