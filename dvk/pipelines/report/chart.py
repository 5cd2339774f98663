"""Chart of the search: speedup against seconds, as inline SVG.

Coordinates come from two `Scale`s and nothing else, so a test can check a dot against the ticks.
Colours are the page's; the chart has classes only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dvk.pipelines.report.attempts import ReportAttempt, best_so_far
from dvk.pipelines.report.markup import Markup, el, join
from dvk.pipelines.report.units import many, show_s
from dvk.records import show_ratio

WIDTH, HEIGHT = 800, 360
LEFT, RIGHT, TOP, BOTTOM = 50, 700, 18, 310
LINE = 14
"""Height of a line of text."""
LOG_RANGE = 4.0
"""Above this ratio of highest to lowest speedup the axis is logarithmic."""
FLOOR = 0.1
"""Slower candidates are drawn at the lower edge: their exact speedup does not matter, and they would squeeze the rest."""


@dataclass(frozen=True)
class Scale:
    """Maps numbers from [lo, hi] onto pixels [start, end]."""

    lo: float
    hi: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        value = min(max(value, self.lo), self.hi)
        if self.log:
            share = math.log(value / self.lo) / math.log(self.hi / self.lo)
        else:
            share = (value - self.lo) / (self.hi - self.lo)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Three to nine round numbers inside the range."""
        if not self.log:
            rough = (self.hi - self.lo) / 6
            unit = 10.0 ** math.floor(math.log10(rough))
            step = next(
                unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999
            )
            first, last = math.ceil(self.lo / step - 1e-9), math.floor(self.hi / step + 1e-9)
            return [round(n * step, 10) for n in range(first, last + 1)]
        decades = math.log10(self.hi / self.lo)
        heads = (1, 1.5, 2, 3, 5, 7) if decades < 1.1 else (1, 2, 5) if decades < 2.6 else (1,)
        powers = range(math.floor(math.log10(self.lo)), math.ceil(math.log10(self.hi)) + 1)
        round_numbers = [round(head * 10.0**power, 10) for power in powers for head in heads]
        return [number for number in round_numbers if self.lo <= number <= self.hi]


def scales(attempts: list[ReportAttempt], compile_speedup: float | None) -> tuple[Scale, Scale]:
    """Seconds → x and speedup → y; 1 (eager) is always inside."""
    longest = max([attempt.seconds for attempt in attempts] + [0.1])
    seen = [1.0] + ([compile_speedup] if compile_speedup else [])
    seen += [
        max(end, FLOOR)
        for a in attempts
        if a.speedup
        for end in (a.speedup.lo, a.speedup.value, a.speedup.hi)
    ]
    lo, hi = min(seen), max(seen)
    log = hi / lo > LOG_RANGE
    if log:
        margin = (hi / lo) ** 0.06
        lo, hi = max(lo / margin, min(lo, FLOOR)), hi * margin
    else:
        margin = max(0.08 * (hi - lo), 0.05)
        lo, hi = max(lo - margin, 0.0), hi + margin
    return Scale(0.0, longest * 1.03, LEFT, RIGHT), Scale(lo, hi, BOTTOM, TOP, log)


def draw(
    attempts: list[ReportAttempt], compile_speedup: float | None, winner: ReportAttempt | None
) -> Markup:
    """The whole `<svg>` of a search with at least one attempt."""
    x, y = scales(attempts, compile_speedup)
    steps = best_so_far(attempts)
    seconds, speedup = steps[-1]
    rise = (
        f"rose to {show_ratio(speedup)} after {show_s(seconds)}"
        if len(steps) > 1
        else "stayed at eager’s 1×"
    )
    timed = sum(attempt.speedup is not None for attempt in attempts)
    description = (
        f"{many(len(attempts), 'verdict')}, {timed} of them with a time; the best so far {rise}."
    )
    return el(
        "svg",
        el("title", "Speedup over eager PyTorch against seconds of search", id="chart-title"),
        el("desc", description, id="chart-desc"),
        _frame(x, y),
        _levels(y, compile_speedup),
        _steps(steps, x, y),
        [_mark(attempt, x, y, attempt is winner) for attempt in attempts],
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby="chart-title chart-desc",
        data_scale="log" if y.log else "linear",
    )


def caption(attempts: list[ReportAttempt]) -> str:
    """The chart's legend, naming only what is in it."""
    told = ["Each dot is a candidate that was checked and timed, its whisker the 95 % interval."]
    if len(best_so_far(attempts)) > 1:
        told.append("The line is the best so far.")
    if any(not a.ok for a in attempts):
        told.append("A cross on the axis is a candidate that failed.")
    if any(a.ok and a.speedup is None for a in attempts):
        told.append("A square on the axis is one that was checked but not timed.")
    if any(a.confirmation and a.speedup for a in attempts):
        told.append("A ring is a confirmation in fresh processes.")
    if any(a.speedup and a.value < FLOOR for a in attempts):
        told.append(f"Candidates slower than {FLOOR:g}× lie on the lower edge.")
    return " ".join(told)


def hover(attempt: ReportAttempt) -> str:
    """The tooltip of one candidate."""
    outcome = (
        attempt.figures if attempt.speedup else f"{attempt.outcome}: {attempt.reason}".rstrip(": ")
    )
    return f"{attempt.number}. {attempt.title} — {outcome} after {show_s(attempt.seconds)}"


def _frame(x: Scale, y: Scale) -> Markup:
    return el(
        "g",
        [
            join(
                el("line", x1=LEFT, x2=RIGHT, y1=y(tick), y2=y(tick), class_="grid"),
                el(
                    "text",
                    f"{tick:g}×",
                    x=LEFT - 8,
                    y=y(tick) + 4,
                    class_="tick-y",
                    data_value=f"{tick:g}",
                ),
            )
            for tick in y.ticks()
        ],
        [
            el(
                "text",
                f"{tick:g}",
                x=x(tick),
                y=BOTTOM + 20,
                class_="tick-x",
                data_value=f"{tick:g}",
            )
            for tick in x.ticks()
        ],
        el("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis"),
        el("text", "seconds of search", x=RIGHT, y=BOTTOM + 40, class_="label-x"),
        class_="frame",
    )


def _levels(y: Scale, compile_speedup: float | None) -> Markup:
    """The baselines as dotted lines, named in the right margin, the names kept apart."""
    levels = [("eager", 1.0)] + ([("torch.compile", compile_speedup)] if compile_speedup else [])
    drawn, free = [], float("inf")
    for label, speedup in sorted(levels, key=lambda level: level[1]):
        at = min(y(speedup) + 4, free)
        free = at - LINE
        drawn.append(
            el(
                "line",
                x1=LEFT,
                x2=RIGHT,
                y1=y(speedup),
                y2=y(speedup),
                class_="level",
                data_level=label,
            )
        )
        drawn.append(el("text", label, x=RIGHT + 8, y=at, class_="level-name"))
    return join(drawn)


def _steps(steps: list[tuple[float, float]], x: Scale, y: Scale) -> Markup | None:
    if len(steps) < 2:
        return None
    path = f"M{x(0):.2f} {y(1):.2f}" + "".join(
        f"H{x(seconds):.2f}V{y(speedup):.2f}" for seconds, speedup in steps[1:]
    )
    return el("path", d=f"{path}H{RIGHT}", class_="best")


def _mark(attempt: ReportAttempt, x: Scale, y: Scale, won: bool) -> Markup:
    at, title = x(attempt.seconds), el("title", hover(attempt))
    if attempt.speedup is None:
        if attempt.ok:
            drawn = el("rect", x=at - 3, y=BOTTOM - 3, width=6, height=6)
            return el("g", title, drawn, class_="mark untimed", data_number=attempt.number)
        drawn = el("path", d=f"M{at - 3.5:.2f} {BOTTOM - 3.5}l7 7m0 -7l-7 7")
        return el("g", title, drawn, class_="mark failed", data_number=attempt.number)
    kind = "confirmed" if attempt.confirmation else "faster" if attempt.speedup.lo > 1 else "slower"
    return el(
        "g",
        title,
        el(
            "line",
            x1=at,
            x2=at,
            y1=y(attempt.speedup.lo),
            y2=y(attempt.speedup.hi),
            class_="whisker",
        ),
        el("circle", cx=at, cy=y(attempt.speedup.value), r=7 if attempt.confirmation else 4),
        class_=f"mark {kind}" + (" won" if won else ""),
        data_number=attempt.number,
    )
