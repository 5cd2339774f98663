"""The report of `dvk optimize` as one self-contained HTML page."""

from __future__ import annotations

from dvk.pipelines.report import chart
from dvk.pipelines.report.code import kernels_first
from dvk.pipelines.report.spending import way_cells
from dvk.pipelines.report.story import BLOCKS, ReportData, timed
from dvk.pipelines.report.templates import render as render_page


def render(story: ReportData) -> str:
    """The whole document."""
    return render_page(
        "search",
        story.manifest,
        title=f"{story.task.name}: {story.headline}",
        story=story,
        ways=[way_cells(row) for row in story.ways if len(story.ways) > 2],
        over=list(dict.fromkeys(name for one in story.sets for name in one.over)),
        block_heads=[
            f"{label.capitalize()} " if 0 < n < 4 else label.capitalize()
            for n, label in enumerate(BLOCKS)
        ],
        operators=list(enumerate(story.operators, start=1)),
        timed=timed(story),
        chart=chart.draw(story.attempts, story.compile_speedup, story.winner)
        if story.attempts
        else None,
        caption=chart.caption(story.attempts) if story.attempts else "",
        generated=None if story.generated is None else kernels_first(story.generated),
    )
