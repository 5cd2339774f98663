"""Reports written to disk and parsed back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from dvk.config import Config
from dvk.pipelines import report
from dvk.records import Episode, Graph
from dvk.runs import RunFolder
from tests.pipelines.searches import GRAPH

NOTHING: dict[str, Any] = {
    "status": "no_speedup",
    "speedup": 0.97,
    "speedup_lo": 0.95,
    "speedup_hi": 0.99,
    "best": None,
    "run": "r",
    "baselines": {"eager": {"ms": 4.2, "speedup": 0.97, "lo": 0.95, "hi": 0.99}, "compile": None},
    "seconds": 40.0,
    "num_candidates": 2,
    "reason": None,
}
FAILED: dict[str, Any] = {
    "status": "failed",
    "speedup": None,
    "speedup_lo": None,
    "speedup_hi": None,
    "best": None,
    "run": "r",
    "baselines": {},
    "seconds": 3.0,
    "num_candidates": 0,
    "reason": "capture failed: <data-dependent> control flow",
}
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """A parsed page; complains of anything that is not well nested."""

    def __init__(self, text: str):
        super().__init__()
        self.text = text
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.tables: list[list[list[str]]] = []
        self.pres: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "pre":
            self.pres.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> inside {self._open}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and re.fullmatch("h[1-6]", self._open[-1]):
            level, text = self.headings[-1]
            self.headings[-1] = (level, text + data)
        if "td" in self._open or "th" in self._open:
            self.tables[-1][-1][-1] += data
        if "pre" in self._open:
            self.pres[-1] += data

    def table(self, header: str) -> list[list[str]]:
        return next(table for table in self.tables if header in table[0])


def write(
    tmp_path: Path,
    made: Episode,
    summary: Mapping[str, Any],
    best: str | None = None,
    graph: Graph | None = GRAPH,
    **given: Any,
) -> tuple[Page, str]:
    run = RunFolder.open(
        tmp_path / "run",
        command="optimize",
        name="mlp_head",
        argv=["dvk", "optimize", "mlp head.py"],
        config=Config(seed=7),
        resume=False,
    )
    report.write(run, made, summary, best_source=best, graph=graph, **given)
    run.finish("done")
    assert sorted(path.name for path in run.path.iterdir()) == [
        ".lock",
        "report.html",
        "report.md",
        "run.json",
    ]
    return Page((run.path / "report.html").read_text()), (run.path / "report.md").read_text()
