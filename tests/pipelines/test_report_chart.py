"""The chart of the search: points match the axes, the line follows the best."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from dvk.pipelines.report import attempts, chart
from dvk.records import Status, Turn
from tests.pipelines.searches import bad, candidate, episode, ok, turns


def drawn(
    made: list[Turn], compile_speedup: float | None = None
) -> tuple[ElementTree.Element, list[attempts.ReportAttempt]]:
    told = attempts.gather(episode(made))
    return ElementTree.fromstring(chart.draw(told, compile_speedup, None)), told


def ticks(svg: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    """(value, pixel) of an axis, read off its labels."""
    found = [t for t in svg.iter("text") if t.get("class") == kind]
    if kind == "tick-x":
        return [(float(t.get("data-value", "")), float(t.get("x", ""))) for t in found]
    return [
        (float(t.get("data-value", "")), float(t.get("y", "")) - 4) for t in found
    ]  # the text's base line


def read(axis: list[tuple[float, float]], value: float, log: bool = False) -> float:
    """The pixel of a value by the line through an axis' outer ticks."""
    from math import log as ln

    scale = ln if log else float
    (a, pa), (b, pb) = axis[0], axis[-1]
    return pa + (pb - pa) * (scale(value) - scale(a)) / (scale(b) - scale(a))


@pytest.mark.parametrize(
    "speedups",
    [[0.9, 1.4, 1.2, 2.3], [0.3, 1.0, 2.0, 9.0], [40.0, 90.0], [1.0004, 1.0005]],
    ids=str,
)
def test_dots_stand_where_the_axes_say(speedups: list[float]) -> None:
    made = [
        Turn(candidate=candidate(i), verdict=ok(speedup, spread=0.02), elapsed_s=3.7 * (i + 1))
        for i, speedup in enumerate(speedups)
    ]
    svg, told = drawn(made)
    log = svg.get("data-scale") == "log"
    assert log == (max(speedups + [1]) / min(speedups + [1]) > 3)
    across, up = ticks(svg, "tick-x"), ticks(svg, "tick-y")
    assert 3 <= len(up) <= 12 and 3 <= len(across) <= 12
    marks = [g for g in svg.iter("g") if "mark" in g.get("class", "").split()]
    assert len(marks) == len(told)
    for mark, attempt in zip(marks, told, strict=True):
        circle, whisker = mark.find("circle"), mark.find("line")
        assert circle is not None and whisker is not None and attempt.speedup is not None
        assert float(circle.get("cx", "")) == pytest.approx(read(across, attempt.seconds), abs=0.1)
        assert float(circle.get("cy", "")) == pytest.approx(read(up, attempt.value, log), abs=0.1)
        assert float(whisker.get("y1", "")) == pytest.approx(
            read(up, attempt.speedup.lo, log), abs=0.1
        )
        assert float(whisker.get("y2", "")) == pytest.approx(
            read(up, attempt.speedup.hi, log), abs=0.1
        )
        assert (mark.findtext("title") or "").startswith(f"{attempt.number}. candidate")
        assert ("faster" in mark.get("class", "")) == (attempt.speedup.lo > 1)


def test_the_line_is_the_best_so_far() -> None:
    speedups = [0.9, 1.4, 1.2, 2.3, 2.0]
    made = [
        Turn(candidate=candidate(i), verdict=ok(s), elapsed_s=float(i + 1))
        for i, s in enumerate(speedups)
    ]
    made.append(Turn(candidate=candidate(3), verdict=ok(2.5, tier="claim"), elapsed_s=9.0))
    svg, _ = drawn(made)
    across, up = ticks(svg, "tick-x"), ticks(svg, "tick-y")
    path = next(p.get("d", "") for p in svg.iter("path") if p.get("class") == "best")
    numbers = [float(n) for n in re.findall(r"[\d.]+", path)]
    want = [
        read(across, 0),
        read(up, 1),
        read(across, 2),
        read(up, 1.4),
        read(across, 4),
        read(up, 2.3),
        chart.RIGHT,
    ]
    assert numbers == pytest.approx(want, abs=0.1)
    assert re.sub(r"[\d. ]+", "", path) == "MHVHVH"


def test_an_interval_that_reaches_one_is_not_a_best() -> None:
    told = attempts.gather(
        episode([Turn(candidate=candidate(1), verdict=ok(1.02, spread=0.05), elapsed_s=1.0)])
    )
    assert attempts.best_so_far(told) == [(0.0, 1.0)]


def test_failures_lie_on_the_axis_and_baselines_at_their_height() -> None:
    made = [
        Turn(candidate=candidate(1), verdict=ok(1.5), elapsed_s=2.0),
        Turn(candidate=candidate(2), verdict=bad(Status.TIMEOUT, "slow"), elapsed_s=6.0),
    ]
    svg, _ = drawn(made, compile_speedup=1.3)
    cross = next(g for g in svg.iter("g") if "failed" in g.get("class", ""))
    x, y = map(float, re.findall(r"[\d.]+", cross.find("path").get("d"))[:2])  # type: ignore[union-attr, arg-type]
    assert (
        x + 3.5 == pytest.approx(read(ticks(svg, "tick-x"), 6.0), abs=0.1)
        and y + 3.5 == chart.BOTTOM
    )
    assert "timeout: slow" in (cross.findtext("title") or "")
    up = ticks(svg, "tick-y")
    levels = {
        line.get("data-level"): float(line.get("y1", ""))
        for line in svg.iter("line")
        if line.get("data-level")
    }
    assert levels == pytest.approx(
        {"eager": read(up, 1.0), "torch.compile": read(up, 1.3)}, abs=0.1
    )


def test_names_of_close_baselines_do_not_overlap() -> None:
    svg, _ = drawn(
        [Turn(candidate=candidate(1), verdict=ok(1.5), elapsed_s=2.0)], compile_speedup=1.01
    )
    heights = [float(t.get("y", "")) for t in svg.iter("text") if t.get("class") == "level-name"]
    assert len(heights) == 2 and abs(heights[0] - heights[1]) >= chart.LINE


def test_the_very_slow_do_not_squeeze_the_rest() -> None:
    made = [
        Turn(candidate=candidate(i), verdict=ok(s), elapsed_s=1.0 + i)
        for i, s in enumerate([0.0004, 1.5])
    ]
    svg, told = drawn(made)
    low = next(c for c in svg.iter("circle"))
    assert chart.TOP < float(low.get("cy", "")) <= chart.BOTTOM
    assert ticks(svg, "tick-y")[0][0] >= 0.05 and "lie on the lower edge" in chart.caption(told)


def test_everything_is_inside_the_picture() -> None:
    svg, _ = drawn(turns(60), compile_speedup=7.0)
    for circle in svg.iter("circle"):
        assert chart.LEFT <= float(circle.get("cx", "")) <= chart.RIGHT
        assert chart.TOP <= float(circle.get("cy", "")) <= chart.BOTTOM
