"""report.html and report.md: what they say, where the dots are, and that nobody's text gets out of its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dvk.config import Config
from dvk.pipelines import report
from dvk.pipelines.report import attempts, chart, code, graph, markdown, units
from dvk.records import Episode, Graph, Node, Status, Turn
from dvk.runs import RunFolder
from tests.pipelines import searches
from tests.pipelines.searches import GRAPH, ORIGINAL, SKILLS, SUMMARY, TASK, bad, candidate, episode, ok, ref, turns

NOTHING: dict[str, Any] = {
    "status": "no_speedup", "speedup": 0.97, "speedup_lo": 0.95, "speedup_hi": 0.99, "best": None, "run": "r",
    "baselines": {"eager": {"ms": 4.2, "speedup": 0.97, "lo": 0.95, "hi": 0.99}, "compile": None},
    "seconds": 40.0, "num_candidates": 2, "reason": None,
}
FAILED: dict[str, Any] = {
    "status": "failed", "speedup": None, "speedup_lo": None, "speedup_hi": None, "best": None, "run": "r",
    "baselines": {}, "seconds": 3.0, "num_candidates": 0, "reason": "capture failed: <data-dependent> control flow",
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
    tmp_path: Path, made: Episode, summary: Mapping[str, Any], best: str | None = None, graph: Graph | None = GRAPH,
    **given: Any,
) -> tuple[Page, str]:
    run = RunFolder.open(
        tmp_path / "run", command="optimize", name="mlp_head", argv=["dvk", "optimize", "mlp head.py"], config=Config(seed=7),
        resume=False,
    )
    report.write(run, made, summary, best_source=best, graph=graph, **given)
    run.finish("done")
    assert sorted(path.name for path in run.path.iterdir()) == [".lock", "report.html", "report.md", "run.json"]
    return Page((run.path / "report.html").read_text()), (run.path / "report.md").read_text()


@pytest.fixture
def faster(tmp_path: Path) -> tuple[Page, str]:
    return write(tmp_path, episode(turns()), SUMMARY, searches.BEST, skills=SKILLS)


# ---------------------------------------------------------------- what is told

def test_sections_come_in_order(faster: tuple[Page, str]) -> None:
    page, text = faster
    told = ["What was slow", "What was tried", "What won, and why", "The search", "The code", "Reproduce"]
    assert page.headings[0] == (1, "2.31× faster than eager PyTorch")
    assert [title for level, title in page.headings if level == 2] == told
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == told
    assert text.startswith("# mlp_head: 2.31× faster than eager PyTorch\n")


def test_headline_numbers(faster: tuple[Page, str]) -> None:
    for text in (faster[0].text, faster[1]):
        for said in ("95 % interval [2.28, 2.34]", "1.67× [1.64, 1.71] over torch.compile", "31 candidates were judged in 58 s",
                     "200 pairs", "confirmed in a fresh process", "EPYC 9354", "fp32 class", "0.0001", "9 fresh random input sets"):
            assert said in text, said


def test_times_of_all_arms(faster: tuple[Page, str]) -> None:
    rows = faster[0].table("Version")
    assert [[row[0], row[1], row[3]] for row in rows[1:]] == [
        ["eager PyTorch", "4.2 ms", "2.31× [2.28, 2.34]"], ["torch.compile", "3.05 ms", "1.67× [1.64, 1.71]"],
        ["best.py", "1.82 ms", ""]]


def test_every_attempt_is_a_row(faster: tuple[Page, str]) -> None:
    page, text = faster
    made = turns()
    rows = page.table("Candidate")[1:]
    lines = [line for line in text.splitlines() if re.match(r"\| +\d+ \| +\S+ (s|min)", line)]
    assert len(rows) == len(lines) == len(made)
    for row, line, turn in zip(rows, lines, made, strict=True):
        assert turn.candidate and turn.verdict
        assert turn.candidate.title in row[2] and turn.candidate.recipes[0] in row[2]
        assert "rowwise0 vector=" in row[3] and "rowwise0 vector=" in line
        shown = str(turn.verdict.timing.speedup) if turn.verdict.timing else "–"
        assert row[5] == shown and shown in line
        assert (turn.verdict.error or "").split("\n")[0] in row[4]
    assert "compile errorg++: error" in rows[6][4] and "12 |" not in rows[6][4], "first line only"
    assert "became best.py" in rows[-1][2] and rows[-1][4] == "confirmed"
    assert "27 ok, 2 mismatch, 1 compile error, 1 timeout, 1 confirmed" in text


def test_what_won_and_why(faster: tuple[Page, str]) -> None:
    for text in (faster[0].text, faster[1]):
        for said in ("online softmax, row kernel, vector width 16", "4 operators became 2 steps", "The runner-up",
                     "online_softmax", "Softmax in two passes", "gelu + mul + _softmax", "vector=16 unroll=2"):
            assert said in text, said


def test_reproduce(faster: tuple[Page, str]) -> None:
    page, text = faster
    assert "dvk optimize 'mlp head.py'" in page.pres and "dvk optimize 'mlp head.py'" in text
    assert any("from best import ModelNew, replace" in pre for pre in page.pres) and "replace(model)" in text
    assert "Seed 7" in page.text and "Seed 7" in text and TASK.id in text
    assert '"claim_pairs": 200' in text and "pydantic 2." in page.text


def test_operators_and_bytes(faster: tuple[Page, str]) -> None:
    rows = [[row[1], row[2], row[3]] for row in faster[0].table("Operator")[1:]]
    activations, weights = 512 * 4096 * 4, 4096 * 1024 * 4
    moved = units.show_bytes(512 * 1024 * 4 + weights + 4096 * 4 + activations)
    assert rows == [
        ["t", "float32[1024,4096]", "view"], ["addmm", "float32[512,4096]", moved],
        *[[name, "float32[512,4096]", units.show_bytes(2 * activations)] for name in ("gelu", "mul", "_softmax")]]
    assert "4 operators that read and write memory" in faster[1] and "takes 27.3 MB" in faster[1]


def test_bytes_of_tuples_views_and_expanded_operands() -> None:
    def node(name: str, op: str, args: tuple[Any, ...], shape: tuple[int, ...] | None, strides: tuple[int, ...]) -> Node:
        return Node(name=name, op=op, args=args, shape=shape, dtype=None if shape is None else "float16",
                    strides=None if shape is None else strides)

    made = Graph(outputs=[ref("v3")], nodes=(
        node("x0", "input", (), (8, 16), (16, 1)),
        node("p0", "param", (), (16,), (1,)),
        node("p1", "param", (), (999,), (1,)),  # not used
        node("v0", "aten.expand.default", (ref("p0"), [8, 16]), (8, 16), (0, 1)),
        node("v1", "aten.var_mean.correction", (ref("x0"),), None, ()),
        node("v2", "operator.getitem", (ref("v1"), 0), (8, 1), (1, 1)),
        node("v3", "aten.mul.Tensor", (ref("v2"), ref("v0")), (8, 16), (16, 1)),
        node("v4", "custom.op.default", (ref("v3"),), None, ()),
    ))
    assert [(op.name, op.moved_bytes) for op in graph.operators(made)] == [
        ("expand", 0), ("var_mean", 256 + 16), ("getitem", 0), ("mul", 16 + 32 + 256), ("op", None)]
    assert graph.least_bytes(made) == 256 + 32 + 256


# ---------------------------------------------------------------- the file itself

def test_the_page_stands_alone(faster: tuple[Page, str]) -> None:
    page, _ = faster
    for tag, attributes in page.elements:
        assert tag not in ("script", "link", "img", "iframe", "object", "base"), tag
        assert not {"src", "href", "srcset", "onload", "onclick"} & set(attributes)
    assert "url(" not in page.text and "@import" not in page.text and "http" not in page.text
    assert ("meta", {"charset": "utf-8"}) in page.elements
    assert "prefers-color-scheme: dark" in page.text and "width=device-width" in page.text


def test_the_page_is_accessible(faster: tuple[Page, str]) -> None:
    page, _ = faster
    levels = [level for level, _ in page.headings]
    assert levels.count(1) == 1 and all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    svg = next(attributes for tag, attributes in page.elements if tag == "svg")
    assert svg["role"] == "img" and set((svg["aria-labelledby"] or "").split()) <= ids
    heads = [attributes for tag, attributes in page.elements if tag == "th"]
    assert heads and all(attributes.get("scope") in ("row", "col") for attributes in heads)
    assert next(attributes for tag, attributes in page.elements if tag == "html")["lang"] == "en"
    for tag, attributes in page.elements:
        if attributes.get("tabindex"):
            assert attributes["role"] == "region" and attributes["aria-label"], tag


def test_contrast_of_text_in_both_palettes() -> None:
    """WCAG AA, 4.5 : 1, for everything that is text; 3 : 1 for marks."""
    from dvk.pipelines.report.style import CSS

    def luminance(colour: str) -> float:
        channels = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    palettes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in CSS.split("@media")[:2]]
    for palette in palettes:
        for name, wanted in {"ink": 7, "soft": 4.5, "accent": 4.5, "wrong": 4.5, "quiet": 3, **dict.fromkeys("cksnd", 4.5)}.items():
            for ground in ("paper", "fill"):
                light, dark = sorted((luminance(palette[name]), luminance(palette[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= wanted, (name, ground, (light + 0.05) / (dark + 0.05))


def test_a_second_write_replaces_the_first(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path / "run", command="optimize", name="m", argv=["dvk"], config=Config(), resume=False)
    for summary in (FAILED, NOTHING):
        report.write(run, episode([]), summary, best_source=None, graph=None)
    run.close()
    assert "Nothing faster" in (run.path / "report.html").read_text()


# ---------------------------------------------------------------- nothing found, nothing at all

def test_no_speedup_is_said_plainly(tmp_path: Path) -> None:
    made = [Turn(candidate=candidate(1), verdict=ok(0.97), elapsed_s=2.0), Turn(candidate=candidate(2), verdict=ok(0.8), elapsed_s=3.0)]
    page, text = write(tmp_path, episode(made), NOTHING)
    assert page.headings[0][1] == "Nothing faster was found"
    for shown in (page.text, text):
        assert "The closest ran at 0.970×" in shown and "left as it is" in shown
        assert "What won" not in shown and "best.py" not in shown and "from best import" not in shown
    assert page.table("Version")[-1][0] == "the closest candidate"
    assert 'class="best"' not in page.text and "No candidate was faster than eager." in text


def test_failed_says_why(tmp_path: Path) -> None:
    page, text = write(tmp_path, episode([]), FAILED, graph=None)
    assert page.headings[0][1] == "The search failed"
    assert "capture failed: &lt;data-dependent&gt; control flow" in page.text
    assert "capture failed: &lt;data-dependent> control flow" in text
    for shown in (page.text, text):
        assert "No candidate was judged." in shown and "operators were not captured" in shown
    assert "<svg" not in page.text
    assert ORIGINAL.strip() in text


def test_a_bare_summary_is_enough(tmp_path: Path) -> None:
    page, text = write(tmp_path, Episode(task=TASK), {"status": "failed"}, graph=None)
    assert "No reason was recorded." in page.text and "No reason was recorded." in text


def test_everything_failed(tmp_path: Path) -> None:
    made = [Turn(candidate=candidate(i), verdict=bad(Status.MISMATCH, "wrong"), elapsed_s=float(i)) for i in (1, 2)]
    page, _ = write(tmp_path, episode(made), NOTHING | {"speedup": None, "baselines": {}, "num_candidates": None})
    assert page.text.count('class="mark failed"') == 2 and "0 agreed with the reference" in page.text


def test_checked_but_not_timed(tmp_path: Path) -> None:
    verdict = ok(1.5).model_copy(update={"timing": None, "untimed_reason": "Triton's interpreter runs on the CPU"})
    page, text = write(tmp_path, episode([Turn(candidate=candidate(1), verdict=verdict, elapsed_s=1.0)]), NOTHING)
    assert 'class="mark untimed"' in page.text and "checked but not timed" in page.text
    assert "Triton's interpreter" in text


def test_without_compile_there_is_no_compile(tmp_path: Path) -> None:
    summary = SUMMARY | {"baselines": {"eager": SUMMARY["baselines"]["eager"], "compile": None}}
    page, text = write(tmp_path, episode(turns()), summary, searches.BEST)
    assert "torch.compile" not in page.text and "torch.compile" not in text
    assert "no longer in the library" in page.text


def test_only_the_policy_is_told(tmp_path: Path) -> None:
    made = episode(turns(3)[:3])
    summary_trace = made.traces[0].model_copy(update={"role": "summary"})
    page, _ = write(tmp_path, made.model_copy(update={"traces": (*made.traces, summary_trace)}), NOTHING)
    assert len(page.table("Candidate")) == 1 + 3


# ---------------------------------------------------------------- the chart

def drawn(made: list[Turn], compile_speedup: float | None = None) -> tuple[ElementTree.Element, list[attempts.Attempt]]:
    told = attempts.gather(episode(made))
    return ElementTree.fromstring(chart.draw(told, compile_speedup, None)), told


def ticks(svg: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    """(value, pixel) of an axis, read off its labels."""
    found = [t for t in svg.iter("text") if t.get("class") == kind]
    return [(float(t.get("data-value", "")), float(t.get("x" if kind == "tick-x" else "y", "")) - 4 * (kind == "tick-y"))
            for t in found]


def read(axis: list[tuple[float, float]], value: float, log: bool = False) -> float:
    """The pixel of a value by the line through an axis' outer ticks."""
    from math import log as ln

    scale = ln if log else float
    (a, pa), (b, pb) = axis[0], axis[-1]
    return pa + (pb - pa) * (scale(value) - scale(a)) / (scale(b) - scale(a))


@pytest.mark.parametrize("speedups", [[0.9, 1.4, 1.2, 2.3], [0.3, 1.0, 2.0, 9.0], [40.0, 90.0], [1.0004, 1.0005]], ids=str)
def test_dots_stand_where_the_axes_say(speedups: list[float]) -> None:
    made = [Turn(candidate=candidate(i), verdict=ok(s, spread=0.02), elapsed_s=3.7 * (i + 1)) for i, s in enumerate(speedups)]
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
        assert float(whisker.get("y1", "")) == pytest.approx(read(up, attempt.speedup.lo, log), abs=0.1)
        assert float(whisker.get("y2", "")) == pytest.approx(read(up, attempt.speedup.hi, log), abs=0.1)
        assert (mark.findtext("title") or "").startswith(f"{attempt.number}. candidate")
        assert ("faster" in mark.get("class", "")) == (attempt.speedup.lo > 1)


def test_the_line_is_the_best_so_far() -> None:
    speedups = [0.9, 1.4, 1.2, 2.3, 2.0]
    made = [Turn(candidate=candidate(i), verdict=ok(s), elapsed_s=float(i + 1)) for i, s in enumerate(speedups)]
    made.append(Turn(candidate=candidate(3), verdict=ok(2.5, tier="claim"), elapsed_s=9.0))
    svg, _ = drawn(made)
    across, up = ticks(svg, "tick-x"), ticks(svg, "tick-y")
    path = next(p.get("d", "") for p in svg.iter("path") if p.get("class") == "best")
    numbers = [float(n) for n in re.findall(r"[\d.]+", path)]
    want = [read(across, 0), read(up, 1), read(across, 2), read(up, 1.4), read(across, 4), read(up, 2.3), chart.RIGHT]
    assert numbers == pytest.approx(want, abs=0.1)
    assert re.sub(r"[\d. ]+", "", path) == "MHVHVH"


def test_an_interval_that_reaches_one_is_not_a_best() -> None:
    told = attempts.gather(episode([Turn(candidate=candidate(1), verdict=ok(1.02, spread=0.05), elapsed_s=1.0)]))
    assert attempts.best_so_far(told) == [(0.0, 1.0)]


def test_failures_lie_on_the_axis_and_baselines_at_their_height() -> None:
    made = [Turn(candidate=candidate(1), verdict=ok(1.5), elapsed_s=2.0),
            Turn(candidate=candidate(2), verdict=bad(Status.TIMEOUT, "slow"), elapsed_s=6.0)]
    svg, _ = drawn(made, compile_speedup=1.3)
    cross = next(g for g in svg.iter("g") if "failed" in g.get("class", ""))
    x, y = map(float, re.findall(r"[\d.]+", cross.find("path").get("d"))[:2])  # type: ignore[union-attr, arg-type]
    assert x + 3.5 == pytest.approx(read(ticks(svg, "tick-x"), 6.0), abs=0.1) and y + 3.5 == chart.BOTTOM
    assert "timeout: slow" in (cross.findtext("title") or "")
    up = ticks(svg, "tick-y")
    levels = {line.get("data-level"): float(line.get("y1", "")) for line in svg.iter("line") if line.get("data-level")}
    assert levels == pytest.approx({"eager": read(up, 1.0), "torch.compile": read(up, 1.3)}, abs=0.1)


def test_names_of_close_baselines_do_not_overlap() -> None:
    svg, _ = drawn([Turn(candidate=candidate(1), verdict=ok(1.5), elapsed_s=2.0)], compile_speedup=1.01)
    heights = [float(t.get("y", "")) for t in svg.iter("text") if t.get("class") == "level-name"]
    assert len(heights) == 2 and abs(heights[0] - heights[1]) >= chart.LINE


def test_the_very_slow_do_not_squeeze_the_rest() -> None:
    made = [Turn(candidate=candidate(i), verdict=ok(s), elapsed_s=1.0 + i) for i, s in enumerate([0.0004, 1.5])]
    svg, told = drawn(made)
    low = next(c for c in svg.iter("circle"))
    assert chart.TOP < float(low.get("cy", "")) <= chart.BOTTOM
    assert ticks(svg, "tick-y")[0][0] >= 0.05 and "lie on the lower edge" in chart.caption(told)


def test_everything_is_inside_the_picture() -> None:
    svg, _ = drawn(turns(60), compile_speedup=7.0)
    for circle in svg.iter("circle"):
        assert chart.LEFT <= float(circle.get("cx", "")) <= chart.RIGHT
        assert chart.TOP <= float(circle.get("cy", "")) <= chart.BOTTOM


# ---------------------------------------------------------------- other people's text

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\x1b[2J\x9b31m\u202e \'`|*[x](javascript:alert(3))'


def evil_report(tmp_path: Path) -> tuple[Page, str]:
    task = TASK.model_copy(update={
        "name": EVIL, "entry": EVIL, "source": f"{ORIGINAL}\n# {EVIL}\n```\n````\n</pre></code></main>\nend = '\ud800'\n"})
    node = Node(name=EVIL, op=f"aten.{EVIL}.x", args=(EVIL,), kwargs={EVIL: EVIL}, shape=(4,), dtype="float32", strides=(1,))
    evil = candidate(1, source=f"SOURCE = r'''#include <a>\n{EVIL}'''\n", title=EVIL, proposer=EVIL, recipes=(EVIL,),
                     skills=("online_softmax", EVIL), schedule={EVIL: {EVIL: EVIL}, "loose" + EVIL: EVIL})
    wrong = candidate(2, title=EVIL, recipes=(EVIL,))
    verdict = ok(2.0, tier="claim").model_copy(update={"machine": EVIL, "precision": EVIL, "shapes": (EVIL,)})
    skill = SKILLS["online_softmax"].model_copy(update={"description": EVIL})
    made = [Turn(candidate=wrong, verdict=bad(Status.LAUNCH_ERROR, EVIL), elapsed_s=1.0),
            Turn(candidate=evil, verdict=verdict, elapsed_s=2.0)]
    summary = SUMMARY | {"reason": EVIL, "groups": [EVIL], "profile": [{"name": EVIL, "share": 0.5, "ms": 1.0}]}
    return write(tmp_path, episode(made, task), summary, evil.source, Graph(nodes=(node,), outputs=ref(EVIL)),
                 skills={"online_softmax": skill}, command_line=EVIL)


def test_nothing_escapes_in_html(tmp_path: Path) -> None:
    page, _ = evil_report(tmp_path)
    allowed = {"html", "head", "meta", "title", "style", "body", "main", "header", "section", "footer", "h1", "h2", "h3", "p", "code",
               "pre", "span", "div", "table", "thead", "tbody", "tr", "th", "td", "small", "dl", "dt", "dd", "ul", "li", "strong",
               "details", "summary", "figure", "figcaption", "svg", "desc", "g", "line", "text", "path", "circle", "rect"}
    assert {tag for tag, _ in page.elements} <= allowed
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert "<script" not in page.text and "<img" not in page.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page.text)
    assert page.text.count("alert(1)") > 15, "the text itself is shown, everywhere"
    assert any("</pre></code></main>" in pre for pre in page.pres)


def test_nothing_escapes_in_markdown(tmp_path: Path) -> None:
    _, text = evil_report(tmp_path)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    outside, fence = [], None
    for line in text.splitlines():
        ticks_found = re.match(r"`{3,}", line)
        if fence is None and ticks_found:
            fence = ticks_found[0]
        elif fence is not None and line == fence:
            fence = None
        elif fence is None:
            outside.append(line)
    assert fence is None, "a code block is left open"
    prose = "\n".join(outside)
    assert "alert(1)" in prose and "<script" not in prose and "<img" not in prose and "](" not in prose
    tables = [line for line in outside if line.startswith("|")]
    for head, rule in zip(tables, tables[1:], strict=False):
        if set(rule) <= set("|-: "):
            columns = head.count(" | ")
            rows = tables[tables.index(rule) + 1:]
            body = [row for row in rows[: next((i for i, r in enumerate(rows) if set(r) <= set("|-: ")), len(rows))]]
            assert columns and all(len(re.findall(r"(?<!\\)\|", row)) == columns + 2 for row in body[:-1] or body)


@pytest.mark.parametrize(("text", "shown"), [
    ("a_b and _softmax", "a_b and _softmax"), ("_both_ ends", r"\_both\_ ends"), ("x[0] [2.28, 2.34]", "x[0] [2.28, 2.34]"),
    ("[a](b)", r"[a\](b)"), ("# no heading", r"\# no heading"), ("1. no list", r"\1. no list"), ("a\n\nb", "a b"),
    ("a|b*c`d", r"a\|b\*c\`d"), ("<b>&", "&lt;b>&amp;"), ("- item", r"\- item"), ("-3 is", "-3 is"),
])  # fmt: skip
def test_one_line_of_markdown(text: str, shown: str) -> None:
    assert markdown.line(text) == shown


def test_tables_line_up_in_a_terminal() -> None:
    rows = markdown.table(["name", "n"], [["長い名前", "1"], ["x" * 200, "12"]], frozenset({1})).splitlines()
    assert len({markdown._columns(row) for row in rows}) == 1 and "…" in rows[-1]


# ---------------------------------------------------------------- code

def text_of(markup: str) -> str:
    page = Page(f"<pre>{markup}</pre>")
    return page.pres[0]


@pytest.mark.parametrize("source", [ORIGINAL, searches.BEST, "", "\n\n  x = '''\n", "\tif (a<b>c) &amp; <!-- \n", "x = 1"], ids=repr)
def test_highlighting_keeps_every_character(source: str) -> None:
    assert text_of(code.highlight(source)) == source


def test_cpp_inside_python_is_coloured_as_cpp() -> None:
    shown = code.highlight(searches.BEST)
    assert '<span class="k">#include &lt;cmath&gt;' in shown.replace('#</span><span class="k">', "#") or "#include" in shown
    assert '<span class="c">// one row a step' in shown
    assert '<span class="k">class</span>' in shown


def test_the_copied_original_is_left_out(faster: tuple[Page, str]) -> None:
    page, _ = faster
    original, best = (pre for pre in page.pres if pre.startswith('"""'))
    assert original == ORIGINAL
    assert "class ModelNew" in best and "def get_inputs" not in best and "the original source, 25 lines, unchanged" in best
    assert code.without_original(f"S = {ORIGINAL!r}\n", ORIGINAL)[0] == "S = # … the original source, 25 lines, unchanged …\n"
    assert code.without_original("x = 1\n", ORIGINAL) == ("x = 1\n", 0)


# ---------------------------------------------------------------- numbers

@pytest.mark.parametrize(("shown", "wanted"), [
    (units.show_ms(4.2), "4.2 ms"), (units.show_ms(0.0456), "45.6 µs"), (units.show_ms(2100), "2.1 s"), (units.show_ms(None), "–"),
    (units.show_s(3.14159), "3.1 s"), (units.show_s(9.97), "10 s"), (units.show_s(200), "3 min 20 s"),
    (units.show_bytes(512), "512 B"), (units.show_bytes(12_582_912), "12.6 MB"), (units.show_bytes(999_999), "1 MB"),
    (units.many(1, "step"), "1 step"), (units.many(1200, "step"), "1,200 steps"), (units.show_share(0.125), "12.5 %"),
])  # fmt: skip
def test_numbers_for_people(shown: str, wanted: str) -> None:
    assert shown == wanted
