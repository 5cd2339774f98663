"""Figures over steps as small charts: one chart a question, one line a series, as inline SVG.

Noisy series are drawn twice: each step faintly, and a running mean over a twentieth of the run on top. A series is named at
its right end, with its last value, so that no legend has to be matched by colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from dvk.pipelines.report.chart import LINE, Scale
from dvk.pipelines.report.markup import Markup, el, join

WIDTH, HEIGHT = 440, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 318, 12, 190
SMOOTH = 20
"""Points from which a running mean is drawn; its window is the same fraction of them, a twentieth."""
COLOURS = 6
"""Classes `c0` … of the style sheet; more series begin again."""


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        label: at its end.
        points: (step, value) in the order of steps; all finite.
    """

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Curves:
    """One chart.

    Attributes:
        title: the question.
        caption: how to read it.
        series: its lines; those without points are not drawn.
        share: values are shares of 1, shown as percentages.
        zero: the axis begins at 0.
    """

    title: str
    caption: str
    series: Sequence[Series]
    share: bool = False
    zero: bool = False

    @property
    def drawn(self) -> list[Series]:
        """Series with points."""
        return [one for one in self.series if one.points]


def scales(curves: Curves) -> tuple[Scale, Scale]:
    """Steps → x and values → y."""
    steps = [step for one in curves.drawn for step, _ in one.points]
    values = [value for one in curves.drawn for _, value in one.points]
    lo, hi = min(values), max(values)
    if curves.zero or curves.share:
        lo, hi = min(lo, 0.0), max(hi, 0.0)
    if hi - lo < 1e-9 * max(abs(lo), abs(hi), 1e-9):
        lo, hi = (lo, lo + 1.0) if curves.zero or curves.share else (lo - 0.5, hi + 0.5)
    margin = 0.06 * (hi - lo)
    lo = lo if lo == 0.0 else lo - margin
    return Scale(min(steps), max(max(steps), min(steps) + 1), LEFT, RIGHT), Scale(
        lo, hi + margin, BOTTOM, TOP
    )


def draw(curves: Curves) -> Markup:
    """The `<svg>` of a chart with at least one point."""
    x, y = scales(curves)
    told = "; ".join(
        f"{one.label} from {show(one.points[0][1], curves.share)} to {show(one.points[-1][1], curves.share)}"
        for one in curves.drawn
    )
    return el(
        "svg",
        el("title", f"{curves.title}: {told}"),
        _frame(x, y, curves.share),
        [_line(one, x, y, number % COLOURS) for number, one in enumerate(curves.drawn)],
        _names(curves, y),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
    )


def running(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Mean of each point and those around it, over a twentieth of all."""
    half = len(points) // (2 * SMOOTH)
    result = []
    for number, (step, _) in enumerate(points):
        around = points[max(0, number - half) : number + half + 1]
        result.append((step, fmean(value for _, value in around)))
    return result


def show(value: float, share: bool = False) -> str:
    """Three digits."""
    if share:
        return f"{100 * value:.3g} %"
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def _frame(x: Scale, y: Scale, share: bool) -> Markup:
    steps = [tick for tick in x.ticks() if tick == math.floor(tick)]
    return el(
        "g",
        [
            join(
                el("line", x1=LEFT, x2=RIGHT, y1=y(tick), y2=y(tick), class_="grid"),
                el("text", show(tick, share), x=LEFT - 6, y=y(tick) + 4, class_="tick-y"),
            )
            for tick in y.ticks()
        ],
        [el("text", f"{tick:g}", x=x(tick), y=BOTTOM + 18, class_="tick-x") for tick in steps],
        el("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis"),
        class_="frame",
    )


def _line(one: Series, x: Scale, y: Scale, colour: int) -> Markup:
    if len(one.points) < SMOOTH:
        marks = [el("circle", cx=x(step), cy=y(value), r=2) for step, value in one.points]
        return el(
            "g",
            _path(one.points, x, y, "line"),
            marks,
            class_=f"series c{colour}",
            data_series=one.label,
        )
    return el(
        "g",
        _path(one.points, x, y, "faint"),
        _path(running(one.points), x, y, "line"),
        class_=f"series c{colour}",
        data_series=one.label,
    )


def _path(points: Sequence[tuple[float, float]], x: Scale, y: Scale, kind: str) -> Markup:
    return el(
        "path",
        d="M" + "L".join(f"{x(step):.1f} {y(value):.1f}" for step, value in points),
        class_=kind,
    )


def _names(curves: Curves, y: Scale) -> Markup:
    """Labels at the right, kept apart, each near its line's end."""
    ends = [
        (number, one, (running(one.points) if len(one.points) >= SMOOTH else one.points)[-1][1])
        for number, one in enumerate(curves.drawn)
    ]
    places: dict[int, float] = {}
    free = TOP + LINE * 0.3
    for number, _, end in sorted(ends, key=lambda item: -item[2]):
        places[number] = max(y(end) + 4, free)
        free = places[number] + LINE
    over = max(0.0, free - LINE - BOTTOM)
    return el(
        "g",
        [
            el(
                "text",
                f"{one.label} {show(end, curves.share)}",
                x=RIGHT + 8,
                y=places[number] - over,
                class_=f"name c{number % COLOURS}",
            )
            for number, one, end in ends
        ],
    )
