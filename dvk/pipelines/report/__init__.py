"""`report.html` and `report.md`: the results of `dvk optimize`, for people.

    story.py     records → the report's content    page.py       HTML
    attempts.py  the judged candidates             templates.py  what all pages share; pages/ has the templates
    code.py      source text, coloured             markup.py     elements that escape, for SVG and code
    units.py     numbers for people                chart.py      the search as SVG
    spending.py  proposers and costs               markdown.py   the same for terminals
    measurement.py  how the winner was measured    curves.py     figures over steps as SVG

It only reads: nothing is measured, run or decided here, and torch is not imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dvk.pipelines.report import markdown, page
from dvk.pipelines.report.story import gather_story
from dvk.records import Episode, Graph, Skill
from dvk.runs import MANIFEST, RunFolder

NO_SKILLS: Mapping[str, Skill] = {}
NO_OTHERS: Mapping[str, Episode] = {}


def write(
    run: RunFolder,
    episode: Episode,
    summary: Mapping[str, Any],
    *,
    best_source: str | None,
    graph: Graph | None,
    skills: Mapping[str, Skill] = NO_SKILLS,
    command_line: str = "",
    machine: str = "",
    others: Mapping[str, Episode] = NO_OTHERS,
) -> None:
    """Write both files into the run's folder, each whole or not at all.

    Args:
        run: an open run; its run.json gives the settings and versions.
        episode: `policy` traces with a turn a judged candidate; other turns and traces are not shown.
        summary: the object that `dvk optimize --json` prints; optional `profile` (rows of name, share in 0–1, ms),
            `groups` (one line a kernel), `blocks` (rows of a network's blocks), `shapes`, `proposers` and `cost`.
        best_source: text of best.py, None when nothing was faster.
        graph: the captured reference, None when capture failed.
        skills: the skills that candidates name, by name.
        command_line: as typed; empty takes it from run.json.
        machine: fingerprint for when no verdict carries one; empty takes it from run.json.
        others: searches for other sets of inputs, by the set's label; the summary's `shapes` has each one's result.
    """
    file = run.path / MANIFEST
    manifest = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    story = gather_story(
        episode,
        summary,
        best_source=best_source,
        graph=graph,
        skills=skills,
        command_line=command_line,
        machine=machine,
        manifest=manifest,
        others=others,
    )
    run.write_text("report.html", page.render(story))
    run.write_text("report.md", markdown.render(story))
